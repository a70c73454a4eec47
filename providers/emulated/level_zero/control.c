/* What the control interface asks of the Level Zero driver. */
#include "control.h"

#include "driver.h"

static const char *call_name(int call) { return lz_call_info(call)->name; }

static const char *kind_name(int kind) {
    if (kind == EMU_MANAGED)
        return "shared";
    return kind < EMU_KINDS ? emu_kind_name((enum emu_kind)kind) : lz_kind_name(kind - EMU_KINDS);
}

/* Would a queue, list or fence be left on a device that is gone? */
static bool has_beyond(unsigned devices) {
    for (int kind = 0; kind < LZ_KINDS; kind++)
        for (struct lz_object *object = lz_first((enum lz_kind)kind); object; object = object->next)
            if (object->device >= (int)devices)
                return true;
    return false;
}

static void list_own(int kind, struct emu_list *list) {
    enum lz_kind own = (enum lz_kind)(kind - EMU_KINDS);
    for (struct lz_object *one = lz_first(own); one; one = one->next)
        emu_list_add(list, (struct umfpyEmuItem){one->node.base, 0, kind, one->device});
}

EMU_PUBLIC uint64_t umfpyEmuResidency(uint64_t address, unsigned device) {
    emu_lock();
    uint64_t count = lz_residency_of(address, device);
    emu_unlock();
    return count;
}

const struct emu_driver emu_driver = {
    .title = "Level Zero",
    .variable = "UMFPY_EMULATE_LEVEL_ZERO",
    .settings = &lz_settings,
    .least_devices = 0,
    .calls = LZ_CALLS,
    .kinds = EMU_KINDS + LZ_KINDS,
    .call_name = call_name,
    .kind_name = kind_name,
    .is_initialised = lz_is_initialised,
    .has_beyond = has_beyond,
    .list_own = list_own,
};
