#define _GNU_SOURCE
#include "memory.h"

#include "export.h"

#include <stdlib.h>
#include <sys/mman.h>

struct emu_memory *emu_memory_new(unsigned device) {
    static uint64_t last_id;
    struct emu_memory *memory = calloc(1, sizeof *memory);
    if (!memory)
        return NULL;
    memory->device = device;
    memory->id = ++last_id;
    memory->file.fd = -1;
    return memory;
}

enum emu_status emu_device_memory(unsigned ordinal, uint64_t size, void *owner,
                                  struct emu_memory **memory) {
    struct emu_device *device = emu_device(ordinal);
    uint64_t charged;
    if (!emu_round_up(size, EMU_UNIT, &charged) || emu_charge(device, charged))
        return EMU_NO_MEMORY;
    struct emu_memory *made = emu_memory_new(ordinal);
    enum emu_status status = made ? emu_device_take(device, charged, &made->tile) : EMU_NO_MEMORY;
    if (status) {
        free(made);
        emu_discharge(device, charged);
        return status;
    }
    made->charged = charged;
    made->bytes = emu_shadow(&device->file, made->tile->start);
    emu_add_range(&made->object, EMU_DEVICE_MEMORY, made->tile->start, size, owner);
    *memory = made;
    return EMU_OK;
}

enum emu_status emu_host_memory(enum emu_kind kind, unsigned device, uint64_t size, void *owner,
                                struct emu_memory **memory) {
    struct emu_memory *made = emu_memory_new(device);
    if (!made)
        return EMU_NO_MEMORY;
    void *bytes = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (bytes == MAP_FAILED) {
        free(made);
        return EMU_NO_MEMORY;
    }
    made->bytes = bytes;
    emu_add_range(&made->object, kind, (uint64_t)(uintptr_t)bytes, size, owner);
    *memory = made;
    return EMU_OK;
}

enum emu_status emu_register(uint64_t base, uint64_t size, void *owner,
                             struct emu_memory **memory) {
    struct emu_memory *made = emu_memory_new(0);
    if (!made)
        return EMU_NO_MEMORY;
    made->bytes = (unsigned char *)(uintptr_t)base;
    if (!emu_add_range(&made->object, EMU_REGISTERED, base, size, owner)) {
        free(made);
        return EMU_INVALID;
    }
    *memory = made;
    return EMU_OK;
}

void emu_memory_free(struct emu_memory *memory) {
    if (memory->export) {
        emu_export_withdraw(memory->export);
        memory->written = true; /* perhaps by an importer */
    }
    emu_remove(&memory->object);
    switch (memory->object.kind) {
    case EMU_DEVICE_MEMORY:
        emu_device_give(emu_device(memory->device), memory->tile, memory->written);
        emu_discharge(emu_device(memory->device), memory->charged);
        break;
    case EMU_HOST_MEMORY:
    case EMU_MANAGED:
        munmap(memory->bytes, memory->object.node.size);
        break;
    case EMU_OPEN:
        emu_open_unmap(memory);
        break;
    default:
        break;
    }
    free(memory);
}

struct emu_memory *emu_memory_find(uint64_t address) {
    return (struct emu_memory *)emu_find_range(address);
}

struct emu_memory *emu_memory_at(enum emu_kind kind, uint64_t base) {
    struct emu_memory *memory = emu_memory_find(base);
    return memory && memory->object.kind == kind && memory->object.node.base == base ? memory
                                                                                     : NULL;
}
