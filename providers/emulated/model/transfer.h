/* Copies and fills by address, over whatever the addresses stand for.
 *
 * An address in a known range is translated to the driver's own view of it; an unknown one is
 * taken for the program's own host memory where the call allows that, and never where only devices
 * have addresses.  A piece must lie in one range, except that mapped physical memory may continue
 * in the next mapping.  Both sides are checked whole before the first byte moves.
 */
#ifndef UMFPY_MODEL_TRANSFER_H
#define UMFPY_MODEL_TRANSFER_H

#include "memory.h"

/* One side of a copy: an address, the device that touches it, and whether it must be memory
 * that the driver knows. */
struct emu_side {
    uint64_t address;
    unsigned device;
    bool known;
};

/* Copy `size` bytes. */
enum emu_status emu_copy(struct emu_side to, struct emu_side from, uint64_t size);

/* Write `count` cells of `width` (1, 2 or 4) bytes, each holding `value`. */
enum emu_status emu_fill(struct emu_side to, unsigned width, uint32_t value, uint64_t count);

/* May all of [address, address + size) be used so? */
bool emu_is_usable(struct emu_side side, uint64_t size, uint8_t access);

#endif
