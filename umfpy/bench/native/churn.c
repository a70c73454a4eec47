/* Random operations, the same on every machine for a seed. */
#include "loop.h"

#include <math.h>

/* splitmix64, by S. Vigna, public domain. */
static uint64_t next_random(struct churn *churn) {
    uint64_t z = churn->random += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* Uniform in [0, 1). */
static double next_fraction(struct churn *churn) {
    return (double)(next_random(churn) >> 11) * 0x1p-53;
}

static uint64_t next_size(struct churn *churn) {
    if (churn->low == churn->high)
        return churn->low;
    double low = (double)churn->low, high = (double)churn->high;
    double fraction = next_fraction(churn);
    if (churn->logarithmic)
        return (uint64_t)(low * pow(high / low, fraction));
    return churn->low + (uint64_t)(fraction * (high - low + 1));
}

static uint32_t next_slot(struct churn *churn) {
    if (!churn->sequential)
        return (uint32_t)(next_fraction(churn) * churn->slots);
    uint32_t slot = churn->turn;
    churn->turn = slot + 1 == churn->slots ? 0 : slot + 1;
    return slot;
}

/* Note that the slot now holds `size` bytes. */
static void hold(struct churn *churn, uint32_t slot, uint64_t size) {
    churn->live += size - churn->held[slot];
    churn->held[slot] = size;
    if (churn->live > churn->peak_live)
        churn->peak_live = churn->live;
}

void bench_generate(struct churn *churn, struct op *ops, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        uint32_t slot = next_slot(churn);
        uint32_t kind = TAKE;
        if (churn->held[slot])
            kind = churn->replace ? TAKE | RELEASE : RELEASE;
        uint64_t size = kind == RELEASE ? 0 : next_size(churn);
        hold(churn, slot, size);
        ops[i] = (struct op){.size = size, .slot = slot, .kind = kind};
    }
}
