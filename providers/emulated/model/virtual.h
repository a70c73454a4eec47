/* Addresses apart from memory: reserve, map physical memory there, allow access, undo.
 *
 * Rules, as both vendors' documentation has them: only unmapped reserved addresses can be mapped; a
 * mapping goes as a whole; nothing can be read or written before access was given; a reservation
 * goes as a whole and unmapped.  Which granularity a driver promises is for the driver to check.
 * CUDA Driver API, "Virtual Memory Management".
 */
#ifndef UMFPY_MODEL_VIRTUAL_H
#define UMFPY_MODEL_VIRTUAL_H

#include "memory.h"
#include "physical.h"

/* Reserve `size` bytes at a multiple of `alignment` (0: EMU_GRANULE); `hint` is tried first. */
enum emu_status emu_reserve(uint64_t size, uint64_t alignment, uint64_t hint, uint64_t *address);
enum emu_status emu_unreserve(uint64_t address, uint64_t size);

/* Map [offset, offset + size) of `physical` at `address`, all in multiples of EMU_MAP_UNIT, with
 * access for nobody. */
enum emu_status emu_map(uint64_t address, uint64_t size, uint64_t offset,
                        struct emu_physical *physical, void *owner);

/* Unmap the mappings that tile [address, address + size) exactly; `count` says how many. */
enum emu_status emu_unmap(uint64_t address, uint64_t size, unsigned *count);

/* Set who may do what on whole mappings that tile the range exactly. */
enum emu_status emu_set_access(uint64_t address, uint64_t size, unsigned device, uint8_t access);

/* Do whole mappings tile the range exactly? */
bool emu_is_mapped(uint64_t address, uint64_t size);

/* The mapping that holds `address`, or NULL. */
struct emu_memory *emu_mapping_find(uint64_t address);

#endif
