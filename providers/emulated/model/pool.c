#define _GNU_SOURCE
#include "pool.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_SPAN (64ull << 30)
#define POINTER_MAGIC 0x31727470u

struct pointer {
    uint32_t magic, slot;
    uint64_t nonce;
    uint8_t pool[16];
    uint64_t spare[3];
    uint64_t checksum;
};

_Static_assert(sizeof(struct pointer) == EMU_HANDLE_BYTES, "pointer exports are 64 bytes");

static enum emu_status open_file(struct emu_pool *pool) {
    uint64_t span = emu_device(pool->device)->capacity;
    span = span < UINT64_MAX / 8 ? span * 4 : span;
    if (span < LEAST_SPAN)
        span = LEAST_SPAN;
    span = emu_aligned(span, EMU_GRANULE);
    enum emu_status status =
        emu_file_create(&pool->file, EMU_FILE_POOL, span, pool->device, pool->shareable, true);
    if (status)
        return status;
    pool->file.window = emu_window_open(span, EMU_GRANULE, 0);
    if (pool->file.window && emu_space_open(&pool->space, pool->file.window, span))
        return EMU_OK;
    emu_file_close(&pool->file);
    return EMU_NO_MEMORY;
}

enum emu_status emu_pool_create(enum emu_kind kind, unsigned device, uint32_t shareable,
                                uint64_t limit, struct emu_pool **pool) {
    struct emu_pool *made = calloc(1, sizeof *made);
    if (!made)
        return EMU_NO_MEMORY;
    *made = (struct emu_pool){.device = device,
                              .shareable = shareable,
                              .limit = limit,
                              .reuse = {1, 1, 1},
                              .file = {.fd = -1}};
    made->access[device] = EMU_READ | EMU_WRITE;
    enum emu_status status = shareable ? open_file(made) : EMU_OK;
    if (status) {
        free(made);
        return status;
    }
    emu_add_handle(&made->object, kind, 0, NULL);
    *pool = made;
    return EMU_OK;
}

static void dispose(struct emu_pool *pool) {
    emu_space_close(&pool->space);
    emu_file_close(&pool->file);
    if (!pool->imported)
        emu_discharge(emu_device(pool->device), pool->reserved);
    free(pool);
}

void emu_pool_destroy(struct emu_pool *pool) {
    emu_remove(&pool->object);
    pool->destroyed = true;
    emu_pool_trim(pool, 0);
    if (!pool->live)
        dispose(pool);
}

/* Reserve what is missing for `bytes` more. */
static enum emu_status grow(struct emu_pool *pool, uint64_t bytes) {
    if (bytes > emu_device(pool->device)->capacity)
        return EMU_NO_MEMORY;
    if (pool->used + bytes <= pool->reserved)
        return EMU_OK;
    uint64_t needed = emu_aligned(pool->used + bytes - pool->reserved, EMU_GRANULE);
    if (pool->limit && pool->reserved + needed > pool->limit)
        return EMU_NO_MEMORY;
    if (emu_charge(emu_device(pool->device), needed))
        return EMU_NO_MEMORY;
    pool->reserved += needed;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    return EMU_OK;
}

static bool has_own_file(const struct emu_pool *pool) { return pool->file.fd >= 0; }

static struct emu_file *file_of(struct emu_pool *pool) {
    return has_own_file(pool) ? &pool->file : &emu_device(pool->device)->file;
}

static enum emu_status take_tile(struct emu_pool *pool, uint64_t size, struct emu_tile **tile) {
    if (!has_own_file(pool))
        return emu_device_take(emu_device(pool->device), size, tile);
    *tile = emu_space_take(&pool->space, size, size >= EMU_GRANULE / 2 ? EMU_GRANULE : EMU_UNIT);
    return *tile ? EMU_OK : EMU_NO_MEMORY;
}

static void give_tile(struct emu_pool *pool, struct emu_tile *tile, bool written) {
    if (!has_own_file(pool)) {
        emu_device_give(emu_device(pool->device), tile, written);
        return;
    }
    if (written)
        emu_file_punch(&pool->file, tile->start - pool->file.window, tile->size);
    emu_space_give(&pool->space, tile);
}

enum emu_status emu_pool_take(struct emu_pool *pool, uint64_t size, struct emu_memory **memory) {
    uint64_t bytes;
    if (pool->imported)
        return EMU_REFUSED;
    if (!emu_round_up(size, EMU_UNIT, &bytes) || grow(pool, bytes))
        return EMU_NO_MEMORY;
    struct emu_memory *made = emu_memory_new(pool->device);
    enum emu_status status = made ? take_tile(pool, bytes, &made->tile) : EMU_NO_MEMORY;
    if (status) {
        free(made);
        return status;
    }
    made->pool = pool;
    made->charged = bytes;
    made->bytes = emu_shadow(file_of(pool), made->tile->start);
    emu_add_range(&made->object, EMU_POOLED, made->tile->start, size, NULL);
    pool->live++;
    pool->used += bytes;
    if (pool->used > pool->used_high)
        pool->used_high = pool->used;
    *memory = made;
    return EMU_OK;
}

void emu_pool_give(struct emu_memory *memory) {
    struct emu_pool *pool = memory->pool;
    bool written = memory->written || memory->export;
    if (memory->export)
        emu_export_withdraw(memory->export);
    emu_remove(&memory->object);
    give_tile(pool, memory->tile, written);
    pool->used -= memory->charged;
    pool->live--;
    free(memory);
    if (pool->destroyed && !pool->live)
        dispose(pool);
}

void emu_pool_trim(struct emu_pool *pool, uint64_t keep) {
    uint64_t least = emu_aligned(pool->used, EMU_GRANULE);
    if (keep < least)
        keep = least;
    if (pool->imported || pool->reserved <= keep)
        return;
    uint64_t surplus = (pool->reserved - keep) & ~(EMU_GRANULE - 1);
    pool->reserved -= surplus;
    emu_discharge(emu_device(pool->device), surplus);
}

static void trim_kind(enum emu_kind kind) {
    for (struct emu_object *object = emu_first(kind); object; object = object->next) {
        struct emu_pool *pool = (struct emu_pool *)object;
        emu_pool_trim(pool, pool->threshold);
    }
}

void emu_pools_waited(void) {
    trim_kind(EMU_POOL);
    trim_kind(EMU_DEFAULT_POOL);
}

enum emu_status emu_pool_export(struct emu_pool *pool, int *fd) {
    if (!pool->shareable || pool->imported)
        return EMU_REFUSED;
    *fd = fcntl(pool->file.fd, F_DUPFD_CLOEXEC, 0);
    return *fd < 0 ? EMU_SYSTEM : EMU_OK;
}

enum emu_status emu_pool_import(int fd, struct emu_pool **pool) {
    struct emu_file file;
    struct emu_file_head head; /* a copy: the exporter can write to the one in the file */
    if (!emu_file_read_head(fd, EMU_FILE_POOL, &head))
        return EMU_STALE;
    enum emu_status status = emu_file_adopt(&file, EMU_FILE_POOL, fd);
    if (status)
        return status;
    file.window = emu_window_open(file.span, EMU_GRANULE, 0);
    struct emu_pool *made = file.window ? calloc(1, sizeof *made) : NULL;
    if (!made) {
        emu_file_close(&file);
        return EMU_NO_MEMORY;
    }
    made->device = head.device < emu_machine.devices ? head.device : 0;
    made->shareable = head.shareable;
    made->imported = true;
    made->file = file;
    made->access[made->device] = EMU_READ | EMU_WRITE;
    emu_add_handle(&made->object, EMU_POOL, 0, NULL);
    *pool = made;
    return EMU_OK;
}

enum emu_status emu_pointer_export(struct emu_memory *memory,
                                   unsigned char data[EMU_HANDLE_BYTES]) {
    if (memory->object.kind != EMU_POOLED || !has_own_file(memory->pool))
        return EMU_REFUSED;
    struct emu_file *file = &memory->pool->file;
    if (!memory->export) {
        enum emu_status status =
            emu_export_enter(file, EMU_SLOT_POINTER, memory->object.node.base - file->window,
                             memory->object.node.size, &memory->export);
        if (status)
            return status;
    }
    struct pointer pointer = {
        .magic = POINTER_MAGIC, .slot = memory->export->slot, .nonce = memory->export->nonce};
    memcpy(pointer.pool, file->head->id, sizeof pointer.pool);
    pointer.checksum = emu_checksum(&pointer, offsetof(struct pointer, checksum));
    memcpy(data, &pointer, sizeof pointer);
    return EMU_OK;
}

static bool read_pointer(const struct emu_pool *pool, const unsigned char data[EMU_HANDLE_BYTES],
                         struct pointer *pointer, struct emu_slot *slot) {
    struct emu_file_head head;
    memcpy(pointer, data, sizeof *pointer);
    if (pointer->magic != POINTER_MAGIC ||
        pointer->checksum != emu_checksum(pointer, offsetof(struct pointer, checksum)))
        return false;
    return emu_file_read_head(pool->file.fd, EMU_FILE_POOL, &head) &&
           !memcmp(head.id, pointer->pool, sizeof head.id) &&
           emu_slot_read(pool->file.fd, &head, pointer->slot, EMU_SLOT_POINTER, pointer->nonce,
                         slot);
}

enum emu_status emu_pointer_import(struct emu_pool *pool,
                                   const unsigned char data[EMU_HANDLE_BYTES],
                                   struct emu_memory **memory) {
    struct pointer pointer;
    struct emu_slot slot;
    if (!pool->imported)
        return EMU_REFUSED;
    if (!read_pointer(pool, data, &pointer, &slot))
        return EMU_STALE;
    struct emu_memory *known = emu_memory_at(EMU_POOL_OPEN, pool->file.window + slot.offset);
    if (known && known->key == pointer.nonce) {
        known->opens++;
        *memory = known;
        return EMU_OK;
    }
    struct emu_memory *made = emu_memory_new(pool->device);
    if (!made)
        return EMU_NO_MEMORY;
    made->pool = pool;
    made->key = pointer.nonce;
    made->opens = 1;
    made->bytes = pool->file.shadow + slot.offset;
    if (!slot.size || !emu_add_range(&made->object, EMU_POOL_OPEN, pool->file.window + slot.offset,
                                     slot.size, NULL)) {
        free(made);
        return EMU_STALE; /* an older import of what stood there before is still open */
    }
    pool->live++;
    *memory = made;
    return EMU_OK;
}

void emu_pointer_close(struct emu_memory *memory) {
    struct emu_pool *pool = memory->pool;
    if (--memory->opens)
        return;
    emu_remove(&memory->object);
    free(memory);
    pool->live--;
    if (pool->destroyed && !pool->live)
        dispose(pool);
}
