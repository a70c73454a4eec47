/* Memory that is only addresses: handed out upwards, never touched, never used again. */
#ifndef UMFPY_BENCH_SIMULATED_H
#define UMFPY_BENCH_SIMULATED_H

#include <stdatomic.h>
#include <stdint.h>

struct simulated {
    _Atomic uint64_t next; /* the lowest address not handed out yet */
    uint64_t page;         /* bytes */
    _Atomic uint64_t allocs;
    _Atomic uint64_t frees;
    _Atomic uint64_t held; /* bytes, and the most they have been */
    _Atomic uint64_t peak;
};

#endif
