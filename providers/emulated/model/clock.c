#include "clock.h"

static uint64_t now, zero;

uint64_t emu_clock_now(void) { return now; }

void emu_clock_spend(uint64_t nanoseconds) { now += nanoseconds; }

void emu_clock_reach(uint64_t moment) {
    if (moment > now)
        now = moment;
}

uint64_t emu_clock_read(void) { return now - zero; }

void emu_clock_reset(void) { zero = now; }

#define MIB (1ull << 20)

uint64_t emu_cost_allocation(uint64_t size) { return 59000 + size / MIB * 270; }

uint64_t emu_cost_free(uint64_t size) {
    uint64_t cost = 46000 + size / MIB * 120;
    return cost < 165000 ? cost : 165000;
}

/* Create and set access of one chunk, by straight lines between the published points. */
static uint64_t chunk(uint64_t size) {
    static const struct {
        uint64_t size, cost;
    } points[] = {{2 * MIB, 67000}, {128 * MIB, 345000}, {1024 * MIB, 460000}};
    if (size <= points[0].size)
        return points[0].cost;
    for (int i = 0; i < 2; i++)
        if (size <= points[i + 1].size)
            return points[i].cost + (size - points[i].size) / MIB *
                                        (points[i + 1].cost - points[i].cost) /
                                        ((points[i + 1].size - points[i].size) / MIB);
    return points[2].cost + (size - points[2].size) / MIB * 128;
}

uint64_t emu_cost_chunk_create(uint64_t size) { return chunk(size) * 29 / 67; }

uint64_t emu_cost_chunk_access(uint64_t size) { return chunk(size) * 38 / 67; }

uint64_t emu_cost_bus(uint64_t size) { return size / 25; }

uint64_t emu_cost_inside(uint64_t size) { return size / 1500; }
