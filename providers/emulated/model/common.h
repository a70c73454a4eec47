/* What every file of the device model shares.
 *
 * The model is a device as a driver sees it: memory that the host cannot touch, addresses that
 * can be reserved apart from memory, a capacity, a clock.  It knows no vendor's interface; the
 * emulated drivers translate theirs into it.
 *
 *   device     memory of one capacity, kept in one sparse file that costs nothing until written
 *   window     the addresses programs see; a host access to them faults
 *   shadow     the driver's own mapping of the same bytes, through which it copies
 *   range      some addresses in use, with what they are: one index finds it from any address
 *   physical   memory without an address, to be mapped somewhere
 *   object     anything that must be given back some day, and so can leak
 *
 * One lock (emu_lock) guards all of it; every function here wants it held unless it says
 * otherwise.
 */
#ifndef UMFPY_MODEL_COMMON_H
#define UMFPY_MODEL_COMMON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EMU_DEVICES 16             /* most devices of one process */
#define EMU_UNIT 512ull            /* allocations are cut and charged in this unit */
#define EMU_GRANULE (2ull << 20)   /* unit of physical memory and of large allocations */
#define EMU_HOST_PAGE 4096ull      /* unit of reservations, and of giving pages back */
#define EMU_MAP_UNIT (64ull << 10) /* unit of file mappings: the largest page of any host */

#define EMU_PUBLIC __attribute__((visibility("default"))) /* exported by the library */

/* What a request to the model came to.  Each driver has its own numbers for these. */
enum emu_status {
    EMU_OK = 0,
    EMU_INVALID,     /* an argument that no rule allows */
    EMU_NO_MEMORY,   /* the device, or the host, has no room */
    EMU_STALE,       /* a handle whose object is gone, or that never was one */
    EMU_OWN_PROCESS, /* refused because the exporter is this very process */
    EMU_REFUSED,     /* the object was not made for this use */
    EMU_SYSTEM,      /* the operating system said no */
};

/* Round `size` up to a multiple of `unit`, a power of two; false where that passes 2^64. */
static inline bool emu_round_up(uint64_t size, uint64_t unit, uint64_t *rounded) {
    if (size > UINT64_MAX - (unit - 1))
        return false;
    *rounded = (size + unit - 1) & ~(unit - 1);
    return true;
}

/* The same where `size` is known to be far below 2^64. */
static inline uint64_t emu_aligned(uint64_t size, uint64_t unit) {
    return (size + unit - 1) & ~(unit - 1);
}

static inline bool emu_is_multiple(uint64_t value, uint64_t unit) { return value % unit == 0; }

#endif
