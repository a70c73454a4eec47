/* Threads without the GIL on a pool's C functions, for a program under a sanitizer.
 *
 * Each thread keeps blocks in slots, fills the ones that it may touch with its own pattern, and
 * reads it again before it frees them or leaves them to the next thread.  What the pool gives to
 * two at once is thus a wrong byte here, and a race to the sanitizer. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What a pool's capsule holds; see umfpy/core/cinterface.pxd. */
struct functions {
    void *param;
    void *(*malloc)(void *param, size_t size, int device);
    void (*free)(void *param, void *ptr, int device);
    void *(*device_malloc)(size_t size, int device, void *stream);
    void (*device_free)(void *ptr, size_t size, int device, void *stream);
    void (*device_record)(void *ptr, void *stream);
};

struct work {
    const struct functions *functions;
    uint64_t seed;
    uint64_t steps;
    uint64_t largest; /* bytes of a block */
    uint32_t slots;
    uint32_t streams; /* 0: CuPy's shape, without streams; else PyTorch's */
    int32_t device;
    uint32_t touch;    /* whether the memory is the host's */
    uint64_t refusals; /* answers: mallocs that were NULL */
    uint64_t spoilt;   /* answers: blocks that were not as they were left */
};

struct block {
    unsigned char *ptr;
    size_t size;
    unsigned char pattern;
};

/* One block at a time changes hands between threads. */
static pthread_mutex_t desk_lock = PTHREAD_MUTEX_INITIALIZER;
static struct block desk;

/* splitmix64, by S. Vigna, public domain. */
static uint64_t next_random(struct work *work) {
    uint64_t z = work->seed += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

static void *any_stream(struct work *work) {
    return (void *)(uintptr_t)(next_random(work) % work->streams);
}

static struct block take(struct work *work) {
    struct block block = {0};
    const struct functions *f = work->functions;
    block.size = (size_t)(next_random(work) % work->largest) + 1;
    block.pattern = (unsigned char)next_random(work);
    block.ptr = work->streams ? f->device_malloc(block.size, work->device, any_stream(work))
                              : f->malloc(f->param, block.size, work->device);
    if (block.ptr == NULL)
        work->refusals++;
    else if (work->touch)
        memset(block.ptr, block.pattern, block.size);
    else if (work->streams > 1 && block.pattern < 16)
        f->device_record(block.ptr, any_stream(work));
    return block;
}

static void give(struct work *work, struct block block) {
    const struct functions *f = work->functions;
    if (work->touch)
        for (size_t i = 0; i < block.size; i++)
            if (block.ptr[i] != block.pattern) {
                work->spoilt++;
                break;
            }
    if (work->streams)
        f->device_free(block.ptr, block.size, work->device, any_stream(work));
    else
        f->free(f->param, block.ptr, work->device);
}

static struct block exchange(struct block mine) {
    pthread_mutex_lock(&desk_lock);
    struct block theirs = desk;
    desk = mine;
    pthread_mutex_unlock(&desk_lock);
    return theirs;
}

static void *run(void *argument) {
    struct work *work = argument;
    struct block *slots = calloc(work->slots, sizeof *slots);
    if (slots == NULL)
        return NULL;
    for (uint64_t step = 0; step < work->steps; step++) {
        struct block *slot = &slots[next_random(work) % work->slots];
        if (slot->ptr == NULL)
            *slot = take(work);
        else if (next_random(work) % 8 == 0)
            *slot = exchange(*slot);
        else {
            give(work, *slot);
            slot->ptr = NULL;
        }
    }
    for (uint32_t i = 0; i < work->slots; i++)
        if (slots[i].ptr != NULL)
            give(work, slots[i]);
    free(slots);
    return NULL;
}

/* Run two threads to their end; then no block is live.  The second differs by its seed. */
int stress_run(struct work *first) {
    struct work second = *first;
    pthread_t threads[2];
    second.seed += 1000003;
    if (pthread_create(&threads[0], NULL, run, first) != 0)
        return -1;
    int failed = pthread_create(&threads[1], NULL, run, &second);
    if (!failed)
        pthread_join(threads[1], NULL);
    pthread_join(threads[0], NULL);
    struct block left = exchange((struct block){0});
    if (left.ptr != NULL)
        give(first, left);
    first->refusals += second.refusals;
    first->spoilt += second.spoilt;
    return failed ? -1 : 0;
}
