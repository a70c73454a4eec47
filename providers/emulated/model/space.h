/* Which parts of a device's window are in use.
 *
 * Tiles cover the space exactly and no two free neighbours exist.  Free tiles wait in one list
 * for each power of two, last freed first, so that an address is soon used again, as on real
 * devices.  The space is several times the capacity, so that it never decides what fits.
 */
#ifndef UMFPY_MODEL_SPACE_H
#define UMFPY_MODEL_SPACE_H

#include "common.h"

struct emu_tile {
    uint64_t start, size;
    bool free;
    struct emu_tile *before, *after; /* neighbours by address */
    struct emu_tile *newer, *older;  /* in the list of free tiles of about this size */
};

struct emu_space {
    struct emu_tile *first;
    struct emu_tile *bins[64];
};

bool emu_space_open(struct emu_space *space, uint64_t start, uint64_t size);
void emu_space_close(struct emu_space *space);

/* Take `size` bytes (a multiple of EMU_UNIT) at a multiple of `alignment`, or NULL. */
struct emu_tile *emu_space_take(struct emu_space *space, uint64_t size, uint64_t alignment);

/* Give a tile back; it merges with free neighbours at once. */
void emu_space_give(struct emu_space *space, struct emu_tile *tile);

#endif
