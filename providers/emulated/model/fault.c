#include "fault.h"

#include <string.h>

#define FAULTS 64

struct fault {
    int call, error;
    uint64_t skip, times; /* calls to let through; then calls to fail.  times 0: free */
};

static struct fault faults[FAULTS];
static bool any_fault;
static uint64_t counts[EMU_CALLS];

/* Does `fault` wait for this call? */
static bool concerns(const struct fault *fault, int call, bool lookup) {
    return fault->times && (fault->call == call || (fault->call == EMU_ANY_CALL && !lookup));
}

int emu_call_count(int call, bool lookup) {
    int error = 0;
    counts[call]++;
    if (!any_fault)
        return 0;
    for (int i = 0; i < FAULTS; i++) {
        struct fault *fault = &faults[i];
        if (!concerns(fault, call, lookup))
            continue;
        if (fault->skip) {
            fault->skip--;
        } else {
            fault->times--;
            error = fault->error;
        }
    }
    return error;
}

bool emu_fault_add(int call, uint64_t nth, uint64_t times, int error) {
    for (int i = 0; i < FAULTS; i++) {
        if (faults[i].times)
            continue;
        faults[i] = (struct fault){.call = call, .error = error, .skip = nth - 1, .times = times};
        any_fault = true;
        return true;
    }
    return false;
}

void emu_fault_clear(void) {
    memset(faults, 0, sizeof faults);
    any_fault = false;
}

uint64_t emu_calls_of(int call) { return counts[call]; }

void emu_calls_reset(void) { memset(counts, 0, sizeof counts); }
