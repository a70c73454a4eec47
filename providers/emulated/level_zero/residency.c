/* Residency: what was made available to devices beyond the one that owns it, counted.
 *
 * Each MakeMemoryResident wants an EvictMemory of its own.  Nothing depends on it here; it is
 * for tests to read (control.h), and freed memory is resident nowhere.
 */
#include "driver.h"

#include <stdlib.h>

struct residency {
    struct emu_node node; /* the base address of an allocation */
    uint64_t counts[EMU_DEVICES];
    unsigned devices; /* how many counts are not 0 */
};

static struct emu_index residencies;

static struct residency *find(uint64_t base) {
    return (struct residency *)emu_index_find(&residencies, base);
}

static struct residency *make(uint64_t base) {
    struct residency *made = calloc(1, sizeof *made);
    if (made) {
        made->node.base = base;
        made->node.size = 1;
        emu_index_insert(&residencies, &made->node);
    }
    return made;
}

static void drop(struct residency *residency) {
    emu_index_remove(&residencies, &residency->node);
    free(residency);
}

void lz_residency_forget(const struct emu_memory *memory) {
    struct residency *residency = find(memory->object.node.base);
    if (residency)
        drop(residency);
}

uint64_t lz_residency_of(uint64_t address, unsigned device) {
    struct emu_memory *memory = emu_memory_find(address);
    struct residency *residency = memory ? find(memory->object.node.base) : NULL;
    return residency && device < EMU_DEVICES ? residency->counts[device] : 0;
}

/* The allocation or mapping that holds the whole piece. */
static ze_result_t find_piece(ze_context_handle_t context, ze_device_handle_t device,
                              const void *address, size_t size, struct emu_memory **memory) {
    LZ_CHECK(lz_check_place(context, device));
    LZ_POINTER(address);
    LZ_REQUIRE(size, ZE_RESULT_ERROR_INVALID_SIZE);
    *memory = emu_memory_find((uintptr_t)address);
    LZ_REQUIRE(*memory && (*memory)->object.owner == context, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    uint64_t inside = (uintptr_t)address - (*memory)->object.node.base;
    LZ_REQUIRE(size <= (*memory)->object.node.size - inside, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeContextMakeMemoryResident,
        (ze_context_handle_t context, ze_device_handle_t device, void *address, size_t size),
        (context, device, address, size)) {
    struct emu_memory *memory;
    LZ_CHECK(find_piece(context, device, address, size, &memory));
    struct residency *residency = find(memory->object.node.base);
    if (!residency)
        residency = make(memory->object.node.base);
    LZ_REQUIRE(residency, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    if (residency->counts[device->ordinal]++ == 0)
        residency->devices++;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeContextEvictMemory,
        (ze_context_handle_t context, ze_device_handle_t device, void *address, size_t size),
        (context, device, address, size)) {
    struct emu_memory *memory;
    LZ_CHECK(find_piece(context, device, address, size, &memory));
    struct residency *residency = find(memory->object.node.base);
    LZ_REQUIRE(residency && residency->counts[device->ordinal], ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (--residency->counts[device->ordinal] == 0 && --residency->devices == 0)
        drop(residency);
    return ZE_RESULT_SUCCESS;
}
