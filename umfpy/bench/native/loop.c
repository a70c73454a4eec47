#define _POSIX_C_SOURCE 200809L
#include "loop.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int replay(const struct pool *pool, struct ops ops, void **slots) {
    const struct pool p = *pool;
    for (uint64_t i = 0; i < ops.count; i++) {
        const struct op op = ops.at[i];
        if (op.kind & RELEASE)
            p.free(p.param, slots[op.slot], 0);
        if (op.kind & TAKE) {
            slots[op.slot] = p.malloc(p.param, op.size, 0);
            if (slots[op.slot] == NULL && op.size != 0)
                return -1;
        }
    }
    return 0;
}

int64_t bench_run(const struct pool *pool, const struct work *work, uint64_t passes) {
    int64_t total = 0;
    for (uint64_t pass = 0; pass < passes; pass++) {
        if (replay(pool, work->prepare, work->slots))
            return -1;
        int64_t start = now_ns();
        if (replay(pool, work->timed, work->slots))
            return -1;
        total += now_ns() - start;
        if (replay(pool, work->drain, work->slots))
            return -1;
    }
    return total;
}

struct worker {
    pthread_t thread;
    pthread_barrier_t *barrier;
    const struct pool *pool;
    const struct work *work;
    uint64_t passes;
    int64_t start, end;
    int failed;
};

/* Prepares, waits for the others, and repeats `timed`: it must leave the slots as it found them
   when there is more than one pass. */
static void *worker_main(void *argument) {
    struct worker *w = argument;
    w->failed = replay(w->pool, w->work->prepare, w->work->slots);
    pthread_barrier_wait(w->barrier);
    w->start = now_ns();
    for (uint64_t pass = 0; pass < w->passes && !w->failed; pass++)
        w->failed = replay(w->pool, w->work->timed, w->work->slots);
    w->end = now_ns();
    pthread_barrier_wait(w->barrier);
    if (!w->failed)
        w->failed = replay(w->pool, w->work->drain, w->work->slots);
    return NULL;
}

/* From the first worker's start to the last one's end. */
static int64_t span(const struct worker *workers, uint32_t count) {
    int64_t start = INT64_MAX, end = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (workers[i].failed)
            return -1;
        start = workers[i].start < start ? workers[i].start : start;
        end = workers[i].end > end ? workers[i].end : end;
    }
    return end - start;
}

int64_t bench_run_threads(const struct pool *pool, const struct work *works, uint32_t threads,
                          uint64_t passes) {
    struct worker *workers = calloc(threads, sizeof *workers);
    pthread_barrier_t barrier;
    if (workers == NULL)
        return -1;
    if (pthread_barrier_init(&barrier, NULL, threads)) {
        free(workers);
        return -1;
    }
    for (uint32_t i = 0; i < threads; i++) {
        workers[i] =
            (struct worker){.barrier = &barrier, .pool = pool, .work = &works[i], .passes = passes};
        /* A missing worker would leave the others at the barrier for ever. */
        if (pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]))
            abort();
    }
    for (uint32_t i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    int64_t result = span(workers, threads);
    pthread_barrier_destroy(&barrier);
    free(workers);
    return result;
}

void *bench_null_malloc(void *param, size_t size, int device) {
    (void)param, (void)size, (void)device;
    return (void *)64;
}

void bench_null_free(void *param, void *ptr, int device) { (void)param, (void)ptr, (void)device; }
