/* The control interface: functions that a real driver does not have, and every emulated one has.
 *
 * For Python, umfpy.emulate wraps them.  All of them can be called from any thread, before and
 * after the driver is initialised.  Settings as text are described in model/settings.h; a variable
 * of the environment, such as UMFPY_EMULATE_CUDA, holds the ones to start with.
 */
#ifndef UMFPY_MODEL_CONTROL_H
#define UMFPY_MODEL_CONTROL_H

#include "object.h"
#include "settings.h"

enum { UMFPY_EMU_OK = 0, UMFPY_EMU_BAD = 1, UMFPY_EMU_LIVE = 2, UMFPY_EMU_FULL = 3 };

/* Start again with these settings over the defaults, counters, faults and clock reset.
 * BAD: they cannot be read.  LIVE: memory, addresses or an export are still in use, or an object
 * on a device that would be gone. */
int umfpyEmuConfigure(const char *settings);

/* Number of devices; capacity of one, in bytes (0: no such device). */
unsigned umfpyEmuDevices(void);
uint64_t umfpyEmuMemory(unsigned device);

/* Change a device's capacity at any time.  BAD: less than is in use, or more than four times what
 * it started with. */
int umfpyEmuSetMemory(unsigned device, uint64_t bytes);

/* Functions by number: exported name (NULL past the last), and how often it was called. */
const char *umfpyEmuCallName(int call);
uint64_t umfpyEmuCallCount(int call);
void umfpyEmuResetCalls(void);

/* Let calls nth .. nth + times - 1 from now of function `name` ("*": of any) answer `error`.
 * BAD: no such function, or a count of 0.  FULL: too many faults are waiting. */
int umfpyEmuFail(const char *name, uint64_t nth, uint64_t times, int error);
void umfpyEmuClearFaults(void);

/* Modelled time spent, in nanoseconds. */
uint64_t umfpyEmuClock(void);
void umfpyEmuResetClock(void);

struct umfpyEmuItem {
    uint64_t address; /* of a handle: its value */
    uint64_t size;
    int kind;
    int device; /* -1: of none */
};

/* What is alive: write up to `room` items, answer how many there are. */
size_t umfpyEmuLive(struct umfpyEmuItem *items, size_t room);

/* Name of a kind (NULL past the last), and whether it counts as a leak. */
const char *umfpyEmuKindName(int kind);
int umfpyEmuKindLeaks(int kind);

/* What the model does not know by itself: each driver says it in one `emu_driver`. */

struct emu_list {
    struct umfpyEmuItem *items;
    size_t room, count; /* at most `room` are written */
    uint64_t bytes;     /* of all that were counted */
};

void emu_list_add(struct emu_list *list, struct umfpyEmuItem item);

struct emu_driver {
    const char *title;              /* in messages */
    const char *variable;           /* of the environment: the settings to start with */
    struct emu_settings *settings;  /* in force */
    unsigned least_devices;         /* that a machine can have with it */
    int calls;                      /* how many functions there are */
    int kinds;                      /* of objects: the model's, then those of the driver alone */
    const char *(*call_name)(int);  /* of a function that there is */
    const char *(*kind_name)(int);  /* NULL past the last */
    bool (*is_initialised)(void);   /* if not, there is nothing to report */
    bool (*has_beyond)(unsigned n); /* is any object of its own on a device from the n-th on? */
    void (*close)(void);            /* drop what keeps memory of the machine, or NULL */
    void (*reset_counts)(void);     /* those that go with the calls', or NULL */
    /* The device of an object of kind EMU_CONTEXT or later, if the driver makes any. */
    int (*device_of)(const struct emu_object *);
    /* The objects of a kind past the model's, if there are any. */
    void (*list_own)(int kind, struct emu_list *);
};

extern const struct emu_driver emu_driver;

/* When the library is loaded: read the environment, set the machine up.  False, and said on
 * standard error, where the settings cannot be read. */
bool emu_driver_load(void);

#endif
