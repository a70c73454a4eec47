/* What the control interface asks of the CUDA driver. */
#include "control.h"

#include "driver.h"

static const char *call_name(int call) { return cu_call_info(call)->name; }

static const char *kind_name(int kind) { return emu_kind_name((enum emu_kind)kind); }

static bool is_context_beyond(enum emu_kind kind, unsigned devices) {
    for (struct emu_object *object = emu_first(kind); object; object = object->next)
        if ((unsigned)((CUcontext)object)->device >= devices)
            return true;
    return false;
}

static bool has_beyond(unsigned devices) {
    return is_context_beyond(EMU_CONTEXT, devices) || is_context_beyond(EMU_PRIMARY, devices);
}

static int device_of(const struct emu_object *object) {
    switch (object->kind) {
    case EMU_CONTEXT:
    case EMU_PRIMARY:
        return ((const struct CUctx_st *)object)->device;
    case EMU_STREAM:
        return (int)((const struct CUstream_st *)object)->queue.device;
    case EMU_EVENT:
        return ((const struct CUevent_st *)object)->context->device;
    default: /* graphs */
        return -1;
    }
}

static void reset_counts(void) { cu_illegal_accesses = 0; }

EMU_PUBLIC uint64_t umfpyEmuIllegalAccesses(void) {
    emu_lock();
    uint64_t count = cu_illegal_accesses;
    emu_unlock();
    return count;
}

const struct emu_driver emu_driver = {
    .title = "CUDA",
    .variable = "UMFPY_EMULATE_CUDA",
    .settings = &cu_settings,
    .least_devices = 1,
    .calls = CU_CALLS,
    .kinds = EMU_KINDS,
    .call_name = call_name,
    .kind_name = kind_name,
    .is_initialised = cu_is_initialised,
    .has_beyond = has_beyond,
    .close = cu_pools_close,
    .reset_counts = reset_counts,
    .device_of = device_of,
};
