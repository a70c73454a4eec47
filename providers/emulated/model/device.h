/* Devices: a capacity, and the file that holds what is allocated on them.
 *
 * Charging: an allocation is charged its size rounded up to 512 bytes, physical memory and pools
 * what they hold in pages of 2 MiB.  (Hardware charges allocations from about 1 MiB in pages of 2
 * MiB too, and packs smaller ones; a model that depends on packing could not say beforehand what
 * fits.)  Each process has the whole capacity for itself.
 */
#ifndef UMFPY_MODEL_DEVICE_H
#define UMFPY_MODEL_DEVICE_H

#include "file.h"
#include "space.h"

struct emu_device {
    uint64_t capacity, used; /* bytes; used <= capacity */
    struct emu_file file;    /* made at the first allocation */
    struct emu_space space;  /* the parts of its window */
};

/* The process's machine, as the settings describe it. */
struct emu_machine {
    unsigned devices;
    struct emu_device device[EMU_DEVICES];
};

extern struct emu_machine emu_machine;

/* Set up `devices` devices of `memory` bytes.  Nothing may be allocated. */
void emu_machine_open(unsigned devices, uint64_t memory);
void emu_machine_close(void);

/* Is any memory of any device, or any address, still in use? */
bool emu_machine_idle(void);

struct emu_device *emu_device(unsigned ordinal);

/* Charge `bytes` to the device, or EMU_NO_MEMORY. */
enum emu_status emu_charge(struct emu_device *device, uint64_t bytes);
void emu_discharge(struct emu_device *device, uint64_t bytes);

/* The device's file, made if it is not there yet. */
enum emu_status emu_device_file(unsigned ordinal, struct emu_file **file);

/* A piece of the device's file for `size` bytes, not charged. */
enum emu_status emu_device_take(struct emu_device *device, uint64_t size, struct emu_tile **tile);

/* Give it back; `written` says whether its pages cost anything. */
void emu_device_give(struct emu_device *device, struct emu_tile *tile, bool written);

/* Does the address lie where only devices have addresses? */
bool emu_is_device_address(uint64_t address);

/* The driver's own view of a piece. */
unsigned char *emu_shadow(const struct emu_file *file, uint64_t address);

#endif
