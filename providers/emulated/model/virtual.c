#include "virtual.h"

#include <stdlib.h>

enum emu_status emu_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address) {
    if (alignment < EMU_GRANULE)
        alignment = EMU_GRANULE;
    if (!size || !emu_is_multiple(size, EMU_HOST_PAGE) || (alignment & (alignment - 1)))
        return EMU_INVALID;
    struct emu_object *reservation = calloc(1, sizeof *reservation);
    uint64_t window = reservation ? emu_window_open(size, alignment, hint) : 0;
    if (!window) {
        free(reservation);
        return EMU_NO_MEMORY;
    }
    emu_add_range(reservation, EMU_RESERVATION, window, size, NULL);
    *address = window;
    return EMU_OK;
}

static bool touches_mapping(uint64_t address, uint64_t size) {
    if (emu_find_range(address))
        return true;
    struct emu_object *next = emu_next_range(address);
    return next && next->node.base - address < size;
}

enum emu_status emu_unreserve(uint64_t address, uint64_t size) {
    struct emu_object *reservation = emu_find_reservation(address);
    if (!reservation || reservation->node.base != address || reservation->node.size != size)
        return EMU_INVALID;
    if (touches_mapping(address, size))
        return EMU_INVALID;
    emu_remove(reservation);
    free(reservation);
    emu_window_close(address, size);
    return EMU_OK;
}

static bool inside_reservation(uint64_t address, uint64_t size) {
    struct emu_object *reservation = emu_find_reservation(address);
    return reservation && size <= reservation->node.size - (address - reservation->node.base);
}

enum emu_status emu_map(uint64_t address, uint64_t size, uint64_t offset,
                        struct emu_physical *physical, void *owner) {
    if (!size || !emu_is_multiple(address | size | offset, EMU_MAP_UNIT) ||
        offset > physical->size || size > physical->size - offset)
        return EMU_INVALID;
    if (!inside_reservation(address, size) || touches_mapping(address, size))
        return EMU_INVALID;
    struct emu_memory *mapping = emu_memory_new(physical->device);
    if (!mapping)
        return EMU_NO_MEMORY;
    mapping->physical = physical;
    mapping->offset = offset;
    emu_physical_mapped(physical);
    emu_add_range(&mapping->object, EMU_MAPPING, address, size, owner);
    return EMU_OK;
}

struct emu_memory *emu_mapping_find(uint64_t address) {
    struct emu_memory *memory = emu_memory_find(address);
    return memory && memory->object.kind == EMU_MAPPING ? memory : NULL;
}

bool emu_is_mapped(uint64_t address, uint64_t size) {
    while (size) {
        struct emu_memory *mapping = emu_memory_at(EMU_MAPPING, address);
        if (!mapping || mapping->object.node.size > size)
            return false;
        address += mapping->object.node.size;
        size -= mapping->object.node.size;
    }
    return true;
}

enum emu_status emu_unmap(uint64_t address, uint64_t size, unsigned *count) {
    *count = 0;
    if (!size || !emu_is_mapped(address, size))
        return EMU_INVALID;
    for (uint64_t end = address + size; address < end; ++*count) {
        struct emu_memory *mapping = emu_memory_at(EMU_MAPPING, address);
        address += mapping->object.node.size;
        emu_remove(&mapping->object);
        emu_physical_unmapped(mapping->physical);
        free(mapping);
    }
    return EMU_OK;
}

enum emu_status emu_set_access(uint64_t address, uint64_t size, unsigned device, uint8_t access) {
    if (!size || !emu_is_mapped(address, size))
        return EMU_INVALID;
    for (uint64_t end = address + size; address < end;) {
        struct emu_memory *mapping = emu_memory_at(EMU_MAPPING, address);
        mapping->access[device] = access;
        address += mapping->object.node.size;
    }
    return EMU_OK;
}
