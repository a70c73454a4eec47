#include "control.h"

#include "clock.h"
#include "fault.h"
#include "lock.h"
#include "physical.h"
#include "pool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool read_settings(const char *text, struct emu_settings *settings) {
    struct emu_settings read = *settings;
    if (!text || !emu_settings_read(text, &read) || read.devices < emu_driver.least_devices)
        return false;
    *settings = read;
    return true;
}

bool emu_driver_load(void) {
    const char *text = getenv(emu_driver.variable);
    bool good = !text || read_settings(text, emu_driver.settings);
    if (!good)
        fprintf(stderr, "umfpy emulated %s: cannot read %s=%s\n", emu_driver.title,
                emu_driver.variable, text);
    emu_machine_open(emu_driver.settings->devices, emu_driver.settings->memory);
    return good;
}

static void reset_counts(void) {
    emu_calls_reset();
    if (emu_driver.reset_counts)
        emu_driver.reset_counts();
}

static int configure(const char *text) {
    struct emu_settings settings = EMU_DEFAULT_SETTINGS;
    if (!read_settings(text, &settings))
        return UMFPY_EMU_BAD;
    if (!emu_machine_idle() || emu_driver.has_beyond(settings.devices))
        return UMFPY_EMU_LIVE;
    if (emu_driver.close)
        emu_driver.close();
    emu_machine_close();
    *emu_driver.settings = settings;
    emu_machine_open(settings.devices, settings.memory);
    emu_fault_clear();
    reset_counts();
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
    bool good = device && bytes >= EMU_GRANULE && bytes >= device->used &&
                bytes / 4 <= emu_driver.settings->memory;
    if (good)
        device->capacity = bytes;
    emu_unlock();
    return good ? UMFPY_EMU_OK : UMFPY_EMU_BAD;
}

static bool is_call(int call) { return call >= 0 && call < emu_driver.calls; }

EMU_PUBLIC const char *umfpyEmuCallName(int call) {
    return is_call(call) ? emu_driver.call_name(call) : NULL;
}

EMU_PUBLIC uint64_t umfpyEmuCallCount(int call) {
    emu_lock();
    uint64_t count = is_call(call) ? emu_calls_of(call) : 0;
    emu_unlock();
    return count;
}

EMU_PUBLIC void umfpyEmuResetCalls(void) {
    emu_lock();
    reset_counts();
    emu_unlock();
}

static bool find_call(const char *name, int *call) {
    *call = EMU_ANY_CALL;
    if (!strcmp(name, "*"))
        return true;
    for (*call = 0; *call < emu_driver.calls; ++*call)
        if (!strcmp(emu_driver.call_name(*call), name))
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

/* What is alive. */

static int device_of(const struct emu_object *object) {
    switch (object->kind) {
    case EMU_RESERVATION:
    case EMU_EXPORT:
        return -1;
    case EMU_PHYSICAL:
        return (int)((const struct emu_physical *)object)->device;
    case EMU_POOL:
    case EMU_DEFAULT_POOL:
        return (int)((const struct emu_pool *)object)->device;
    default:
        return object->kind < EMU_CONTEXT ? (int)((const struct emu_memory *)object)->device
                                          : emu_driver.device_of(object);
    }
}

void emu_list_add(struct emu_list *list, struct umfpyEmuItem item) {
    if (list->count < list->room)
        list->items[list->count] = item;
    list->count++;
    list->bytes += item.size;
}

static void list_kind(int kind, struct emu_list *list) {
    if (kind >= EMU_KINDS) {
        emu_driver.list_own(kind, list);
        return;
    }
    for (struct emu_object *one = emu_first((enum emu_kind)kind); one; one = one->next)
        emu_list_add(list, (struct umfpyEmuItem){one->node.base, one->bytes, kind, device_of(one)});
}

EMU_PUBLIC size_t umfpyEmuLive(struct umfpyEmuItem *items, size_t room) {
    struct emu_list list = {.items = items, .room = room};
    emu_lock();
    for (int kind = 0; kind < emu_driver.kinds; kind++)
        list_kind(kind, &list);
    emu_unlock();
    return list.count;
}

EMU_PUBLIC const char *umfpyEmuKindName(int kind) { return emu_driver.kind_name(kind); }

/* Default pools cannot be destroyed, primary contexts are commonly kept to the end, and nodes go
 * with their graph. */
static bool is_leak(int kind) {
    return kind >= 0 && kind < emu_driver.kinds && kind != EMU_DEFAULT_POOL &&
           kind != EMU_PRIMARY && kind != EMU_GRAPH_NODE;
}

EMU_PUBLIC int umfpyEmuKindLeaks(int kind) { return is_leak(kind); }

/* The report that the setting "report=1" asks for, when the library is unloaded at exit. */

#define TITLE "umfpy emulated %s [%d]: "

static bool report_kind(int process, int kind) {
    struct emu_list list = {0};
    list_kind(kind, &list);
    if (list.count)
        fprintf(stderr, TITLE "leaked %zu %s, %llu bytes\n", emu_driver.title, process, list.count,
                emu_driver.kind_name(kind), (unsigned long long)list.bytes);
    return list.count;
}

static void report_leaks(int process) {
    bool any = false;
    for (int kind = 0; kind < emu_driver.kinds; kind++)
        any |= is_leak(kind) && report_kind(process, kind);
    if (!any)
        fprintf(stderr, TITLE "nothing leaked\n", emu_driver.title, process);
}

static void report_calls(int process) {
    for (int call = 0; call < emu_driver.calls; call++)
        if (emu_calls_of(call))
            fprintf(stderr, TITLE "called %s %llu times\n", emu_driver.title, process,
                    emu_driver.call_name(call), (unsigned long long)emu_calls_of(call));
    fprintf(stderr, TITLE "modelled time %.1f us\n", emu_driver.title, process,
            (double)emu_clock_read() / 1e3);
}

__attribute__((destructor)) static void report(void) {
    if (!emu_driver.settings->report || !emu_driver.is_initialised() || emu_is_orphan())
        return;
    report_leaks(getpid());
    report_calls(getpid());
}
