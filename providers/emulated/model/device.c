#include "device.h"

#include "object.h"

struct emu_machine emu_machine;

#define LEAST_SPAN (64ull << 30)

void emu_machine_open(unsigned devices, uint64_t memory) {
    emu_machine.devices = devices;
    for (unsigned i = 0; i < devices; i++)
        emu_machine.device[i] = (struct emu_device){.capacity = memory, .file = {.fd = -1}};
}

void emu_machine_close(void) {
    for (unsigned i = 0; i < emu_machine.devices; i++) {
        struct emu_device *device = &emu_machine.device[i];
        emu_space_close(&device->space);
        emu_file_close(&device->file);
    }
    emu_machine.devices = 0;
}

bool emu_machine_idle(void) {
    static const enum emu_kind memory[] = {EMU_DEVICE_MEMORY, EMU_HOST_MEMORY, EMU_REGISTERED,
                                           EMU_MANAGED,       EMU_POOLED,      EMU_RESERVATION,
                                           EMU_PHYSICAL,      EMU_MAPPING,     EMU_POOL,
                                           EMU_OPEN,          EMU_POOL_OPEN,   EMU_EXPORT};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        if (emu_count(memory[i]))
            return false;
    return true;
}

struct emu_device *emu_device(unsigned ordinal) {
    return ordinal < emu_machine.devices ? &emu_machine.device[ordinal] : NULL;
}

enum emu_status emu_charge(struct emu_device *device, uint64_t bytes) {
    if (bytes > device->capacity - device->used)
        return EMU_NO_MEMORY;
    device->used += bytes;
    return EMU_OK;
}

void emu_discharge(struct emu_device *device, uint64_t bytes) { device->used -= bytes; }

/* Room for four times the capacity, so that holes between allocations never matter. */
static enum emu_status open_file(struct emu_device *device) {
    uint64_t span = device->capacity < UINT64_MAX / 8 ? device->capacity * 4 : device->capacity;
    if (span < LEAST_SPAN)
        span = LEAST_SPAN;
    span = emu_aligned(span, EMU_GRANULE);
    unsigned ordinal = (unsigned)(device - emu_machine.device);
    enum emu_status status =
        emu_file_create(&device->file, EMU_FILE_DEVICE, span, ordinal, 0, true);
    if (status)
        return status;
    device->file.window = emu_window_open(span, EMU_GRANULE, 0);
    if (device->file.window && emu_space_open(&device->space, device->file.window, span))
        return EMU_OK;
    emu_file_close(&device->file);
    return EMU_NO_MEMORY;
}

/* Large pieces start on pages of 2 MiB, as drivers have it; small ones pack. */
static uint64_t alignment_of(uint64_t size) {
    return size >= EMU_GRANULE / 2 ? EMU_GRANULE : EMU_UNIT;
}

enum emu_status emu_device_file(unsigned ordinal, struct emu_file **file) {
    struct emu_device *device = emu_device(ordinal);
    *file = &device->file;
    return device->file.fd < 0 ? open_file(device) : EMU_OK;
}

enum emu_status emu_device_take(struct emu_device *device, uint64_t size, struct emu_tile **tile) {
    enum emu_status status = device->file.fd < 0 ? open_file(device) : EMU_OK;
    if (status)
        return status;
    *tile = emu_space_take(&device->space, size, alignment_of(size));
    return *tile ? EMU_OK : EMU_NO_MEMORY;
}

void emu_device_give(struct emu_device *device, struct emu_tile *tile, bool written) {
    if (written)
        emu_file_punch(&device->file, tile->start - device->file.window, tile->size);
    emu_space_give(&device->space, tile);
}

bool emu_is_device_address(uint64_t address) {
    for (unsigned i = 0; i < emu_machine.devices; i++) {
        const struct emu_file *file = &emu_machine.device[i].file;
        if (file->fd >= 0 && address - file->window < file->span)
            return true;
    }
    return emu_find_reservation(address) != NULL;
}

unsigned char *emu_shadow(const struct emu_file *file, uint64_t address) {
    return file->shadow + (address - file->window);
}
