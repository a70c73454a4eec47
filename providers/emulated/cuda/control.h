/* The control interface of the emulated CUDA driver: functions that the real one does not have.
 *
 * For Python, umfpy.emulate wraps it.  All of it can be called from any thread, before and after
 * cuInit.  Settings as text are described in model/settings.h; the environment variable
 * UMFPY_EMULATE_CUDA holds the ones to start with.
 */
#ifndef UMFPY_CUDA_CONTROL_H
#define UMFPY_CUDA_CONTROL_H

#include <stddef.h>
#include <stdint.h>

enum { UMFPY_EMU_OK = 0, UMFPY_EMU_BAD = 1, UMFPY_EMU_LIVE = 2, UMFPY_EMU_FULL = 3 };

/* Start again with these settings over the defaults, counters, faults and clock reset.
 * BAD: they cannot be read.  LIVE: memory, addresses or an export are still in use, or a
 * context on a device that would be gone. */
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

/* How many nodes of launched graphs would have touched memory that is not theirs any more; counted
 * since the calls were last reset. */
uint64_t umfpyEmuIllegalAccesses(void);

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

#endif
