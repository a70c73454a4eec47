/* A virtual clock: what the calls would have cost on hardware, in nanoseconds.
 *
 * Nothing waits.  A call moves the clock by its modelled cost; work put on a queue moves that
 * queue's end, and whoever waits for the queue moves the clock there.
 */
#ifndef UMFPY_MODEL_CLOCK_H
#define UMFPY_MODEL_CLOCK_H

#include "common.h"

uint64_t emu_clock_now(void);
void emu_clock_spend(uint64_t nanoseconds);
void emu_clock_reach(uint64_t moment);

/* What a program reads: the time since the last reset.  The clock itself never goes back, as
 * queues have their ends on it. */
uint64_t emu_clock_read(void);
void emu_clock_reset(void);

/* Modelled costs that depend on a size.  Sources: published measurements, rounded.
 *   allocation: about 59 us for common sizes and 0.6 ms for 2 GiB;
 *   physical chunk (create and set access together): 67 us at 2 MiB, 345 us at 128 MiB, 460 us at
 *     1 GiB, so that 2 GiB in such chunks costs 115, 9 and 1.5 times one allocation;
 *   transfer: 25 GB/s over the bus, 1.5 TB/s inside the device. */
uint64_t emu_cost_allocation(uint64_t size);
uint64_t emu_cost_free(uint64_t size);
uint64_t emu_cost_chunk_create(uint64_t size);
uint64_t emu_cost_chunk_access(uint64_t size);
uint64_t emu_cost_bus(uint64_t size);
uint64_t emu_cost_inside(uint64_t size);

#endif
