#define _GNU_SOURCE
#include "export.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLE_MAGIC 0x31706975u

struct handle {
    uint32_t magic;
    int32_t process;
    uint64_t started; /* clock ticks since boot: process numbers come again */
    uint64_t inode;
    int32_t descriptor;
    uint32_t slot;
    uint64_t nonce;
    uint32_t kind;
    uint32_t device;
    uint64_t spare;
    uint64_t checksum;
};

_Static_assert(sizeof(struct handle) == EMU_HANDLE_BYTES, "handles are 64 bytes");

uint64_t emu_checksum(const void *bytes, size_t size) {
    uint64_t hash = 0xcbf29ce484222325ull;
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ ((const unsigned char *)bytes)[i]) * 0x100000001b3ull;
    return hash;
}

/* When a process was started, proc(5) stat field 22; 0: there is none. */
static uint64_t process_start(int process) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = 0;
    char *field = strrchr(text, ')'); /* the name before it may hold anything, spaces too */
    for (int skipped = 2; field && skipped < 22; skipped++)
        field = strchr(field + 1, ' ');
    return field ? strtoull(field + 1, NULL, 10) : 0;
}

static bool find_free_slot(struct emu_file *file, uint32_t *number) {
    for (uint32_t tried = 0; tried < file->slot_count; tried++) {
        uint32_t slot = file->cursor++ % file->slot_count;
        if (file->slots[slot].kind == EMU_SLOT_FREE) {
            *number = slot;
            return true;
        }
    }
    return false;
}

enum emu_status emu_export_enter(struct emu_file *file, enum emu_slot_kind kind, uint64_t offset,
                                 uint64_t size, struct emu_export **export) {
    struct emu_export *made = calloc(1, sizeof *made);
    if (!made || !find_free_slot(file, &made->slot)) {
        free(made);
        return EMU_NO_MEMORY;
    }
    made->file = file;
    emu_random(&made->nonce, sizeof made->nonce);
    file->slots[made->slot] =
        (struct emu_slot){.nonce = made->nonce, .offset = offset, .size = size, .kind = kind};
    emu_add_counted(&made->object, EMU_EXPORT, file->window + offset, size);
    *export = made;
    return EMU_OK;
}

void emu_export_withdraw(struct emu_export *export) {
    export->file->slots[export->slot] = (struct emu_slot){0};
    emu_remove(&export->object);
    free(export);
}

enum emu_status emu_handle_write(const struct emu_export *export,
                                 unsigned char bytes[EMU_HANDLE_BYTES]) {
    struct stat status;
    if (fstat(export->file->fd, &status))
        return EMU_SYSTEM;
    struct handle handle = {
        .magic = HANDLE_MAGIC,
        .process = getpid(),
        .started = process_start(getpid()),
        .inode = status.st_ino,
        .descriptor = export->file->fd,
        .slot = export->slot,
        .nonce = export->nonce,
        .kind = export->file->slots[export->slot].kind,
        .device = export->file->head->device,
    };
    handle.checksum = emu_checksum(&handle, offsetof(struct handle, checksum));
    memcpy(bytes, &handle, sizeof handle);
    return EMU_OK;
}

enum emu_status emu_export_memory(struct emu_memory *memory,
                                  unsigned char handle[EMU_HANDLE_BYTES]) {
    struct emu_file *file = &emu_device(memory->device)->file;
    if (!memory->export) {
        uint64_t offset = memory->object.node.base - file->window;
        enum emu_status status = emu_export_enter(file, EMU_SLOT_MEMORY, offset,
                                                  memory->object.node.size, &memory->export);
        if (status)
            return status;
    }
    return emu_handle_write(memory->export, handle);
}

static bool read_handle(const unsigned char bytes[EMU_HANDLE_BYTES], enum emu_slot_kind kind,
                        struct handle *handle) {
    memcpy(handle, bytes, sizeof *handle);
    return handle->magic == HANDLE_MAGIC && handle->kind == (uint32_t)kind &&
           handle->checksum == emu_checksum(handle, offsetof(struct handle, checksum));
}

/* Open the exporter's file, after making sure that it is one of ours: opening an arbitrary file
 * for somebody's forged handle could block, or worse. */
static int open_exporter(const struct handle *handle) {
    static const char expected[] = "/memfd:umfpy-device";
    char path[64], target[128];
    if (handle->process <= 0 || handle->descriptor < 0 ||
        process_start(handle->process) != handle->started)
        return -1;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", handle->process, handle->descriptor);
    ssize_t length = readlink(path, target, sizeof target);
    if (length < (ssize_t)sizeof expected - 1 || memcmp(target, expected, sizeof expected - 1))
        return -1;
    return open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
}

bool emu_slot_read(int fd, const struct emu_file_head *head, uint32_t number,
                   enum emu_slot_kind kind, uint64_t nonce, struct emu_slot *slot) {
    if (number >= head->slots)
        return false;
    ssize_t got = pread(fd, slot, sizeof *slot, (off_t)emu_slot_offset(head, number));
    return got == (ssize_t)sizeof *slot && slot->kind == (uint32_t)kind && slot->nonce == nonce &&
           slot->offset <= head->span && (slot->size || kind == EMU_SLOT_EVENT) &&
           slot->size <= head->span - slot->offset;
}

/* Everything a handle claims, against what its exporter's file says now; -1, or a descriptor. */
static int resolve(const struct handle *handle, struct emu_slot *slot) {
    struct emu_file_head head;
    struct stat status;
    int fd = open_exporter(handle);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &status) && status.st_ino == handle->inode &&
        emu_file_read_head(fd, EMU_FILE_DEVICE, &head) && head.device == handle->device &&
        emu_slot_read(fd, &head, handle->slot, (enum emu_slot_kind)handle->kind, handle->nonce,
                      slot))
        return fd;
    close(fd);
    return -1;
}

/* Map the pages that hold the piece, and give it addresses with the same place in them. */
static bool map_piece(struct emu_memory *memory, int fd, const struct emu_slot *slot) {
    uint64_t start = slot->offset & ~(EMU_MAP_UNIT - 1);
    uint64_t inside = slot->offset - start;
    uint64_t length = emu_aligned(inside + slot->size, EMU_MAP_UNIT);
    void *shadow =
        mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)start);
    if (shadow == MAP_FAILED)
        return false;
    madvise(shadow, length, MADV_DONTFORK);
    memory->file.window = emu_window_open(length, EMU_GRANULE, 0);
    if (!memory->file.window) {
        munmap(shadow, length);
        return false;
    }
    memory->file.shadow = shadow;
    memory->file.span = length;
    memory->bytes = memory->file.shadow + inside;
    return true;
}

void emu_open_unmap(struct emu_memory *memory) {
    munmap(memory->file.shadow, memory->file.span);
    emu_window_close(memory->file.window, memory->file.span);
}

static struct emu_memory *find_open(uint64_t key, const void *owner) {
    for (struct emu_object *object = emu_first(EMU_OPEN); object; object = object->next) {
        struct emu_memory *memory = (struct emu_memory *)object;
        if (memory->key == key && object->owner == owner)
            return memory;
    }
    return NULL;
}

enum emu_status emu_open_slot(int fd, const struct emu_slot *slot, unsigned device, void *owner,
                              struct emu_memory **memory) {
    struct emu_memory *made = emu_memory_new(device);
    if (!made || !map_piece(made, fd, slot)) {
        free(made);
        return EMU_NO_MEMORY;
    }
    made->key = slot->nonce;
    made->opens = 1;
    uint64_t base = made->file.window + slot->offset % EMU_MAP_UNIT;
    emu_add_range(&made->object, EMU_OPEN, base, slot->size, owner);
    *memory = made;
    return EMU_OK;
}

enum emu_status emu_open_memory(const unsigned char bytes[EMU_HANDLE_BYTES], void *owner,
                                struct emu_memory **memory) {
    struct handle handle;
    struct emu_slot slot;
    if (!read_handle(bytes, EMU_SLOT_MEMORY, &handle))
        return EMU_STALE;
    int fd = resolve(&handle, &slot);
    if (fd < 0)
        return EMU_STALE;
    enum emu_status status = EMU_OK;
    struct emu_memory *open = find_open(handle.nonce, owner);
    if (handle.process == getpid()) {
        status = EMU_OWN_PROCESS;
    } else if (open) {
        open->opens++;
        *memory = open;
    } else {
        unsigned device = handle.device < emu_machine.devices ? handle.device : 0;
        status = emu_open_slot(fd, &slot, device, owner, memory);
    }
    close(fd);
    return status;
}

void emu_close_memory(struct emu_memory *memory) {
    if (--memory->opens == 0)
        emu_memory_free(memory);
}

enum emu_status emu_check_event(const unsigned char bytes[EMU_HANDLE_BYTES]) {
    struct handle handle;
    struct emu_slot slot;
    if (!read_handle(bytes, EMU_SLOT_EVENT, &handle))
        return EMU_STALE;
    int fd = resolve(&handle, &slot);
    if (fd < 0)
        return EMU_STALE;
    close(fd);
    return handle.process == getpid() ? EMU_OWN_PROCESS : EMU_OK;
}
