#include "control.h"

#include "driver.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Would a context be left on a device that is gone? */
static bool context_beyond(enum emu_kind kind, unsigned devices) {
    for (struct emu_object *object = emu_first(kind); object; object = object->next)
        if ((unsigned)((CUcontext)object)->device >= devices)
            return true;
    return false;
}

static int configure(const char *text) {
    struct emu_settings settings = EMU_DEFAULT_SETTINGS;
    if (!text || !emu_settings_read(text, &settings))
        return UMFPY_EMU_BAD;
    if (!emu_machine_idle() || context_beyond(EMU_CONTEXT, settings.devices) ||
        context_beyond(EMU_PRIMARY, settings.devices))
        return UMFPY_EMU_LIVE;
    cu_pools_close();
    emu_machine_close();
    cu_settings = settings;
    emu_machine_open(settings.devices, settings.memory);
    emu_fault_clear();
    emu_calls_reset();
    cu_illegal_accesses = 0;
    emu_clock_reset();
    return UMFPY_EMU_OK;
}

EMU_PUBLIC int umfpyEmuConfigure(const char *settings) {
    emu_lock();
    int result = configure(settings);
    emu_unlock();
    return result;
}

EMU_PUBLIC unsigned umfpyEmuDevices(void) { return emu_machine.devices; }

EMU_PUBLIC uint64_t umfpyEmuMemory(unsigned device) {
    return emu_device(device) ? emu_device(device)->capacity : 0;
}

EMU_PUBLIC int umfpyEmuSetMemory(unsigned ordinal, uint64_t bytes) {
    emu_lock();
    struct emu_device *device = emu_device(ordinal);
    bool good =
        device && bytes >= EMU_GRANULE && bytes >= device->used && bytes / 4 <= cu_settings.memory;
    if (good)
        device->capacity = bytes;
    emu_unlock();
    return good ? UMFPY_EMU_OK : UMFPY_EMU_BAD;
}

EMU_PUBLIC const char *umfpyEmuCallName(int call) {
    const struct cu_call_info *info = cu_call_info(call);
    return info ? info->name : NULL;
}

EMU_PUBLIC uint64_t umfpyEmuCallCount(int call) {
    emu_lock();
    uint64_t count = cu_call_info(call) ? emu_calls_of(call) : 0;
    emu_unlock();
    return count;
}

EMU_PUBLIC void umfpyEmuResetCalls(void) {
    emu_lock();
    emu_calls_reset();
    cu_illegal_accesses = 0;
    emu_unlock();
}

EMU_PUBLIC uint64_t umfpyEmuIllegalAccesses(void) {
    emu_lock();
    uint64_t count = cu_illegal_accesses;
    emu_unlock();
    return count;
}

static bool find_call(const char *name, int *call) {
    *call = EMU_ANY_CALL;
    if (!strcmp(name, "*"))
        return true;
    for (*call = 0; *call < CU_CALLS; ++*call)
        if (!strcmp(cu_call_info(*call)->name, name))
            return true;
    return false;
}

EMU_PUBLIC int umfpyEmuFail(const char *name, uint64_t nth, uint64_t times, int error) {
    int call;
    if (!name || !nth || !times || !error || !find_call(name, &call))
        return UMFPY_EMU_BAD;
    emu_lock();
    bool added = emu_fault_add(call, nth, times, error);
    emu_unlock();
    return added ? UMFPY_EMU_OK : UMFPY_EMU_FULL;
}

EMU_PUBLIC void umfpyEmuClearFaults(void) {
    emu_lock();
    emu_fault_clear();
    emu_unlock();
}

EMU_PUBLIC uint64_t umfpyEmuClock(void) {
    emu_lock();
    uint64_t now = emu_clock_read();
    emu_unlock();
    return now;
}

EMU_PUBLIC void umfpyEmuResetClock(void) {
    emu_lock();
    emu_clock_reset();
    emu_unlock();
}

static int device_of(const struct emu_object *object) {
    switch (object->kind) {
    case EMU_RESERVATION:
    case EMU_EXPORT:
    case EMU_GRAPH:
    case EMU_GRAPH_NODE:
    case EMU_GRAPH_EXEC:
        return -1;
    case EMU_CONTEXT:
    case EMU_PRIMARY:
        return ((const struct CUctx_st *)object)->device;
    case EMU_STREAM:
        return (int)((const struct CUstream_st *)object)->queue.device;
    case EMU_EVENT:
        return ((const struct CUevent_st *)object)->context->device;
    case EMU_POOL:
    case EMU_DEFAULT_POOL:
        return (int)((const struct emu_pool *)object)->device;
    case EMU_PHYSICAL:
        return (int)((const struct emu_physical *)object)->device;
    default:
        return (int)((const struct emu_memory *)object)->device;
    }
}

EMU_PUBLIC size_t umfpyEmuLive(struct umfpyEmuItem *items, size_t room) {
    size_t count = 0;
    emu_lock();
    for (int kind = 0; kind < EMU_KINDS; kind++)
        for (struct emu_object *object = emu_first((enum emu_kind)kind); object;
             object = object->next, count++)
            if (count < room)
                items[count] = (struct umfpyEmuItem){object->node.base, object->bytes, kind,
                                                     device_of(object)};
    emu_unlock();
    return count;
}

EMU_PUBLIC const char *umfpyEmuKindName(int kind) { return emu_kind_name((enum emu_kind)kind); }

/* Default pools cannot be destroyed, primary contexts are commonly kept to the end, and nodes go
 * with their graph. */
EMU_PUBLIC int umfpyEmuKindLeaks(int kind) {
    return kind != EMU_DEFAULT_POOL && kind != EMU_PRIMARY && kind != EMU_GRAPH_NODE;
}

/* The report that the setting "report=1" asks for, when the library is unloaded at exit. */

static void report_leaks(int process) {
    bool any = false;
    for (int kind = 0; kind < EMU_KINDS; kind++) {
        uint64_t bytes = 0;
        for (struct emu_object *object = emu_first((enum emu_kind)kind); object;
             object = object->next)
            bytes += object->bytes;
        if (!umfpyEmuKindLeaks(kind) || !emu_count((enum emu_kind)kind))
            continue;
        any = true;
        fprintf(stderr, "umfpy emulated CUDA [%d]: leaked %zu %s, %llu bytes\n", process,
                emu_count((enum emu_kind)kind), emu_kind_name((enum emu_kind)kind),
                (unsigned long long)bytes);
    }
    if (!any)
        fprintf(stderr, "umfpy emulated CUDA [%d]: nothing leaked\n", process);
}

static void report_calls(int process) {
    for (int call = 0; call < CU_CALLS; call++)
        if (emu_calls_of(call))
            fprintf(stderr, "umfpy emulated CUDA [%d]: called %s %llu times\n", process,
                    cu_call_info(call)->name, (unsigned long long)emu_calls_of(call));
    fprintf(stderr, "umfpy emulated CUDA [%d]: modelled time %.1f us\n", process,
            (double)emu_clock_read() / 1e3);
}

__attribute__((destructor)) static void report(void) {
    if (!cu_settings.report || !cu_is_initialised() || emu_is_orphan())
        return;
    report_leaks(getpid());
    report_calls(getpid());
}
