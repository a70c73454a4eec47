/* Replays operations on any pool that has the two functions of CuPy's CFunctionAllocator. */
#ifndef UMFPY_BENCH_LOOP_H
#define UMFPY_BENCH_LOOP_H

#include <stddef.h>
#include <stdint.h>

typedef void *(*malloc_fn)(void *param, size_t size, int device);
typedef void (*free_fn)(void *param, void *ptr, int device);

struct pool {
    void *param; /* which pool, to its own functions */
    malloc_fn malloc;
    free_fn free;
};

enum {
    TAKE = 1,    /* allocate into the slot */
    RELEASE = 2, /* free what the slot holds; with TAKE, before allocating */
};

struct op {
    uint64_t size; /* bytes, for TAKE */
    uint32_t slot;
    uint32_t kind;
};

struct ops {
    const struct op *at;
    uint64_t count;
};

/* What one thread does: only `timed` is measured, and `drain` leaves every slot empty. */
struct work {
    struct ops prepare;
    struct ops timed;
    struct ops drain;
    void **slots;
};

/* The state of a generator of random operations. */
struct churn {
    uint64_t random; /* the seed, then the state */
    uint64_t low;    /* sizes in bytes, from 1, both ends included */
    uint64_t high;
    uint32_t logarithmic; /* whether the logarithm of the size is uniform, not the size */
    uint32_t slots;
    uint32_t sequential; /* slots in turn, not at random */
    uint32_t replace;    /* a full slot is freed and filled again, not only freed */
    uint32_t turn;       /* the next slot when sequential */
    uint64_t live;       /* bytes that the slots hold, and the most they have */
    uint64_t peak_live;
    uint64_t *held; /* [slots] bytes, 0 for an empty one */
};

/* Both return nanoseconds, or -1 if an allocation failed. */
int64_t bench_run(const struct pool *pool, const struct work *work, uint64_t passes);
int64_t bench_run_threads(const struct pool *pool, const struct work *works, uint32_t threads,
                          uint64_t passes);

/* Writes the next `count` operations. */
void bench_generate(struct churn *churn, struct op *ops, uint64_t count);

/* A pool that does nothing: what the loop itself costs. */
void *bench_null_malloc(void *param, size_t size, int device);
void bench_null_free(void *param, void *ptr, int device);

#endif
