#include "control.h"

#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Would a queue, list or fence be left on a device that is gone? */
static bool any_beyond(unsigned devices) {
    for (int kind = 0; kind < LZ_KINDS; kind++)
        for (struct lz_object *object = lz_first((enum lz_kind)kind); object; object = object->next)
            if (object->device >= (int)devices)
                return true;
    return false;
}

static int configure(const char *text) {
    struct emu_settings settings = EMU_DEFAULT_SETTINGS;
    if (!text || !emu_settings_read(text, &settings))
        return UMFPY_EMU_BAD;
    if (!emu_machine_idle() || any_beyond(settings.devices))
        return UMFPY_EMU_LIVE;
    emu_machine_close();
    lz_settings = settings;
    emu_machine_open(settings.devices, settings.memory);
    emu_fault_clear();
    emu_calls_reset();
    emu_clock_reset();
    return UMFPY_EMU_OK;
}

LZ_PUBLIC int umfpyEmuConfigure(const char *settings) {
    emu_lock();
    int result = configure(settings);
    emu_unlock();
    return result;
}

LZ_PUBLIC unsigned umfpyEmuDevices(void) { return emu_machine.devices; }

LZ_PUBLIC uint64_t umfpyEmuMemory(unsigned device) {
    return emu_device(device) ? emu_device(device)->capacity : 0;
}

LZ_PUBLIC int umfpyEmuSetMemory(unsigned ordinal, uint64_t bytes) {
    emu_lock();
    struct emu_device *device = emu_device(ordinal);
    bool good =
        device && bytes >= EMU_GRANULE && bytes >= device->used && bytes / 4 <= lz_settings.memory;
    if (good)
        device->capacity = bytes;
    emu_unlock();
    return good ? UMFPY_EMU_OK : UMFPY_EMU_BAD;
}

LZ_PUBLIC const char *umfpyEmuCallName(int call) {
    const struct lz_call_info *info = lz_call_info(call);
    return info ? info->name : NULL;
}

LZ_PUBLIC uint64_t umfpyEmuCallCount(int call) {
    emu_lock();
    uint64_t count = lz_call_info(call) ? emu_calls_of(call) : 0;
    emu_unlock();
    return count;
}

LZ_PUBLIC void umfpyEmuResetCalls(void) {
    emu_lock();
    emu_calls_reset();
    emu_unlock();
}

static bool find_call(const char *name, int *call) {
    *call = EMU_ANY_CALL;
    if (!strcmp(name, "*"))
        return true;
    for (*call = 0; *call < LZ_CALLS; ++*call)
        if (!strcmp(lz_call_info(*call)->name, name))
            return true;
    return false;
}

LZ_PUBLIC int umfpyEmuFail(const char *name, uint64_t nth, uint64_t times, int error) {
    int call;
    if (!name || !nth || !times || !error || !find_call(name, &call))
        return UMFPY_EMU_BAD;
    emu_lock();
    bool added = emu_fault_add(call, nth, times, error);
    emu_unlock();
    return added ? UMFPY_EMU_OK : UMFPY_EMU_FULL;
}

LZ_PUBLIC void umfpyEmuClearFaults(void) {
    emu_lock();
    emu_fault_clear();
    emu_unlock();
}

LZ_PUBLIC uint64_t umfpyEmuClock(void) {
    emu_lock();
    uint64_t now = emu_clock_read();
    emu_unlock();
    return now;
}

LZ_PUBLIC void umfpyEmuResetClock(void) {
    emu_lock();
    emu_clock_reset();
    emu_unlock();
}

LZ_PUBLIC uint64_t umfpyEmuResidency(uint64_t address, unsigned device) {
    emu_lock();
    uint64_t count = lz_residency_of(address, device);
    emu_unlock();
    return count;
}

/* What is alive.  Kinds are the model's first, then Level Zero's own. */

static int device_of(const struct emu_object *object) {
    switch (object->kind) {
    case EMU_RESERVATION:
    case EMU_EXPORT:
        return -1;
    case EMU_PHYSICAL:
        return (int)((const struct emu_physical *)object)->device;
    default:
        return (int)((const struct emu_memory *)object)->device;
    }
}

struct list {
    struct umfpyEmuItem *items;
    size_t room, count;
};

static void list_one(struct list *list, struct umfpyEmuItem item) {
    if (list->count < list->room)
        list->items[list->count] = item;
    list->count++;
}

static void list_kind(struct list *list, int kind) {
    if (kind < EMU_KINDS) {
        for (struct emu_object *one = emu_first((enum emu_kind)kind); one; one = one->next)
            list_one(list, (struct umfpyEmuItem){one->node.base, one->bytes, kind, device_of(one)});
    } else {
        enum lz_kind own = (enum lz_kind)(kind - EMU_KINDS);
        for (struct lz_object *one = lz_first(own); one; one = one->next)
            list_one(list, (struct umfpyEmuItem){one->node.base, 0, kind, one->device});
    }
}

LZ_PUBLIC size_t umfpyEmuLive(struct umfpyEmuItem *items, size_t room) {
    struct list list = {items, room, 0};
    emu_lock();
    for (int kind = 0; kind < EMU_KINDS + LZ_KINDS; kind++)
        list_kind(&list, kind);
    emu_unlock();
    return list.count;
}

LZ_PUBLIC const char *umfpyEmuKindName(int kind) {
    if (kind == EMU_MANAGED)
        return "shared";
    return kind < EMU_KINDS ? emu_kind_name((enum emu_kind)kind) : lz_kind_name(kind - EMU_KINDS);
}

LZ_PUBLIC int umfpyEmuKindLeaks(int kind) { return kind >= 0 && kind < EMU_KINDS + LZ_KINDS; }

/* The report that the setting "report=1" asks for, when the library is unloaded at exit. */

#define TITLE "umfpy emulated Level Zero [%d]: "

static bool report_kind(int process, int kind) {
    struct list list = {NULL, 0, 0};
    unsigned long long bytes = 0;
    list_kind(&list, kind);
    if (!list.count)
        return false;
    if (kind < EMU_KINDS)
        for (struct emu_object *one = emu_first((enum emu_kind)kind); one; one = one->next)
            bytes += one->bytes;
    fprintf(stderr, TITLE "leaked %zu %s, %llu bytes\n", process, list.count,
            umfpyEmuKindName(kind), bytes);
    return true;
}

static void report_leaks(int process) {
    bool any = false;
    for (int kind = 0; kind < EMU_KINDS + LZ_KINDS; kind++)
        any |= report_kind(process, kind);
    if (!any)
        fprintf(stderr, TITLE "nothing leaked\n", process);
}

static void report_calls(int process) {
    for (int call = 0; call < LZ_CALLS; call++)
        if (emu_calls_of(call))
            fprintf(stderr, TITLE "called %s %llu times\n", process, lz_call_info(call)->name,
                    (unsigned long long)emu_calls_of(call));
    fprintf(stderr, TITLE "modelled time %.1f us\n", process, (double)emu_clock_read() / 1e3);
}

__attribute__((destructor)) static void report(void) {
    if (!lz_settings.report || !lz_is_initialised() || emu_is_orphan())
        return;
    report_leaks(getpid());
    report_calls(getpid());
}
