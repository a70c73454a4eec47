/* Pools that give memory in the order of a queue and keep it for the next request.
 *
 *   reserved   charged to the device, in steps of 2 MiB; used <= reserved
 *   used       given to the program
 *
 * A free only lowers `used`; what is reserved beyond the release threshold goes back to the
 * device when a queue, an event or the device is waited for.  A pool's memory never fragments
 * here: that is for the allocators above it to show.  CUDA Driver API, "Stream Ordered Memory
 * Allocator".
 */
#ifndef UMFPY_MODEL_POOL_H
#define UMFPY_MODEL_POOL_H

#include "export.h"

struct emu_pool {
    struct emu_object object; /* a handle */
    unsigned device;
    uint32_t shareable;
    uint64_t limit; /* bytes it may reserve; 0: what the device has */
    uint64_t reserved, reserved_high;
    uint64_t used, used_high;
    uint64_t threshold; /* bytes kept over a wait */
    uint64_t reuse[3];  /* policies, remembered only */
    uint8_t access[EMU_DEVICES];
    unsigned live; /* allocations not yet freed */
    bool imported, destroyed;
    struct emu_file file; /* of its own, if shareable; else the device's is used */
    struct emu_space space;
};

enum emu_status emu_pool_create(enum emu_kind kind, unsigned device, uint32_t shareable,
                                uint64_t limit, struct emu_pool **pool);

/* The handle dies now, the pool with its last allocation. */
void emu_pool_destroy(struct emu_pool *pool);

enum emu_status emu_pool_take(struct emu_pool *pool, uint64_t size, struct emu_memory **memory);
void emu_pool_give(struct emu_memory *memory);

/* Give back what is reserved but not used, down to `keep` bytes. */
void emu_pool_trim(struct emu_pool *pool, uint64_t keep);

/* Something was waited for: every pool goes down to its threshold. */
void emu_pools_waited(void);

/* Across processes: the pool by descriptor, its allocations by 64 bytes each. */
enum emu_status emu_pool_export(struct emu_pool *pool, int *fd);
enum emu_status emu_pool_import(int fd, struct emu_pool **pool);
enum emu_status emu_pointer_export(struct emu_memory *memory, unsigned char data[EMU_HANDLE_BYTES]);
enum emu_status emu_pointer_import(struct emu_pool *pool,
                                   const unsigned char data[EMU_HANDLE_BYTES],
                                   struct emu_memory **memory);
void emu_pointer_close(struct emu_memory *memory);

#endif
