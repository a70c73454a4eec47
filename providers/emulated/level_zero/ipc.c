/* Memory of other processes: handles whose first field is a descriptor.
 *
 * The exporter keeps one descriptor for each allocation that it has exported, until as many puts as
 * gets have come, or the memory is freed.  Whoever carries a handle to another process must carry
 * the descriptor too, and write the number that it has there into the handle's first field.
 * Everything else in a handle is covered by a checksum, and believed only when the file behind the
 * descriptor confirms it: freed memory is refused even when its address is in use again.  (A real
 * driver may hang or crash there.)  The descriptor's file position names its slot, so that a handle
 * can be made from a descriptor alone.
 *
 * Each open gives new addresses and holds a descriptor of its own.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31637069u

struct handle {
    int32_t descriptor;
    uint32_t magic;
    uint64_t nonce; /* of the export, model/export.h */
    uint32_t slot;
    uint32_t device;
    uint64_t spare[4];
    uint64_t checksum; /* of all between the descriptor and here */
};

_Static_assert(sizeof(struct handle) == sizeof(ze_ipc_mem_handle_t), "handles are 64 bytes");

static uint64_t checksum(const struct handle *handle) {
    return emu_checksum(&handle->magic,
                        offsetof(struct handle, checksum) - offsetof(struct handle, magic));
}

static void write_handle(int descriptor, uint32_t slot, uint64_t nonce, uint32_t device,
                         ze_ipc_mem_handle_t *opaque) {
    struct handle handle = {
        .descriptor = descriptor, .magic = MAGIC, .nonce = nonce, .slot = slot, .device = device};
    handle.checksum = checksum(&handle);
    memcpy(opaque->data, &handle, sizeof handle);
}

static ze_result_t read_handle(const ze_ipc_mem_handle_t *opaque, struct handle *handle) {
    memcpy(handle, opaque->data, sizeof *handle);
    LZ_REQUIRE(handle->magic == MAGIC && handle->checksum == checksum(handle),
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return ZE_RESULT_SUCCESS;
}

/* A descriptor with a file position of its own, which a duplicate would not have. */
static int reopen(const struct emu_file *file, uint32_t slot) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", file->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && lseek(fd, slot, SEEK_SET) < 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* In an exported allocation, `file.fd` is the descriptor in its handle and `opens` the number of
 * gets. */
static ze_result_t export_first(struct emu_memory *memory) {
    struct emu_file *file = &emu_device(memory->device)->file;
    LZ_CHECK(
        lz_result(emu_export_enter(file, EMU_SLOT_MEMORY, memory->object.node.base - file->window,
                                   memory->object.node.size, &memory->export),
                  ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY));
    memory->file.fd = reopen(file, memory->export->slot);
    if (memory->file.fd < 0) {
        emu_export_withdraw(memory->export);
        memory->export = NULL;
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    return ZE_RESULT_SUCCESS;
}

static bool is_same_file(int one, int other) {
    struct stat first, second;
    return !fstat(one, &first) && !fstat(other, &second) && first.st_ino == second.st_ino &&
           first.st_dev == second.st_dev;
}

/* The program may have closed the descriptor itself, and the number may be somebody else's now. */
void lz_export_forget(struct emu_memory *memory) {
    if (!memory->export)
        return;
    if (is_same_file(memory->file.fd, emu_device(memory->device)->file.fd))
        close(memory->file.fd);
    memory->file.fd = -1;
    memory->opens = 0;
    emu_export_withdraw(memory->export);
    memory->export = NULL;
    memory->written = true; /* perhaps by an importer */
}

LZ_CALL(zeMemGetIpcHandle,
        (ze_context_handle_t context, const void *address, ze_ipc_mem_handle_t *handle),
        (context, address, handle)) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    LZ_POINTER(handle);
    struct emu_memory *memory = lz_memory_at(context, address);
    LZ_REQUIRE(memory && memory->object.kind == EMU_DEVICE_MEMORY,
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (!memory->export)
        LZ_CHECK(export_first(memory));
    memory->opens++;
    write_handle(memory->file.fd, memory->export->slot, memory->export->nonce, memory->device,
                 handle);
    return ZE_RESULT_SUCCESS;
}

/* The allocation of this process that a handle names, or NULL. */
static struct emu_memory *find_exported(const struct handle *handle) {
    struct emu_device *device = emu_device(handle->device);
    if (!device || device->file.fd < 0 || handle->slot >= device->file.slot_count)
        return NULL;
    uint64_t base = device->file.window + device->file.slots[handle->slot].offset;
    struct emu_memory *memory = emu_memory_at(EMU_DEVICE_MEMORY, base);
    bool same = memory && memory->export && memory->export->slot == handle->slot &&
                memory->export->nonce == handle->nonce;
    return same ? memory : NULL;
}

LZ_CALL(zeMemPutIpcHandle, (ze_context_handle_t context, ze_ipc_mem_handle_t opaque),
        (context, opaque)) {
    struct handle handle;
    LZ_CHECK(lz_check_context(context));
    LZ_CHECK(read_handle(&opaque, &handle));
    struct emu_memory *memory = find_exported(&handle);
    LZ_REQUIRE(memory && memory->object.owner == context, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    if (--memory->opens == 0)
        lz_export_forget(memory);
    return ZE_RESULT_SUCCESS;
}

/* Opening. */

static ze_result_t open_slot(int fd, const struct emu_slot *slot, ze_context_handle_t context,
                             unsigned device, void **address) {
    struct emu_memory *made;
    int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    LZ_REQUIRE(own >= 0, ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY);
    if (emu_open_slot(own, slot, device, context, &made)) {
        close(own);
        return ZE_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    made->file.fd = own;
    *address = (void *)(uintptr_t)made->object.node.base;
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeMemOpenIpcHandle,
        (ze_context_handle_t context, ze_device_handle_t device, ze_ipc_mem_handle_t opaque,
         uint32_t flags, void **address),
        (context, device, opaque, flags, address)) {
    struct handle handle;
    struct emu_file_head head;
    struct emu_slot slot;
    LZ_CHECK(lz_check_place(context, device));
    LZ_REQUIRE(flags <= 0x3, ZE_RESULT_ERROR_INVALID_ENUMERATION);
    LZ_POINTER(address);
    LZ_CHECK(read_handle(&opaque, &handle));
    LZ_REQUIRE(emu_file_read_head(handle.descriptor, EMU_FILE_DEVICE, &head) &&
                   head.device == handle.device &&
                   emu_slot_read(handle.descriptor, &head, handle.slot, EMU_SLOT_MEMORY,
                                 handle.nonce, &slot),
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    return open_slot(handle.descriptor, &slot, context, device->ordinal, address);
}

LZ_CALL(zeMemCloseIpcHandle, (ze_context_handle_t context, const void *address),
        (context, address)) {
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(address);
    struct emu_memory *memory = lz_memory_at(context, address);
    LZ_REQUIRE(memory && memory->object.kind == EMU_OPEN, ZE_RESULT_ERROR_INVALID_ARGUMENT);
    lz_residency_forget(memory);
    close(memory->file.fd);
    emu_memory_free(memory);
    return ZE_RESULT_SUCCESS;
}

/* Between descriptors and handles. */

static bool read_slot_of(int fd, struct emu_file_head *head, uint32_t *number,
                         struct emu_slot *slot) {
    off_t position = lseek(fd, 0, SEEK_CUR);
    if (position < 0 || !emu_file_read_head(fd, EMU_FILE_DEVICE, head) || position >= head->slots)
        return false;
    *number = (uint32_t)position;
    ssize_t got = pread(fd, slot, sizeof *slot, (off_t)emu_slot_offset(head, *number));
    return got == (ssize_t)sizeof *slot && slot->kind == EMU_SLOT_MEMORY;
}

LZ_CALL(zeMemGetIpcHandleFromFileDescriptorExp,
        (ze_context_handle_t context, uint64_t descriptor, ze_ipc_mem_handle_t *handle),
        (context, descriptor, handle)) {
    struct emu_file_head head;
    struct emu_slot slot;
    uint32_t number;
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(handle);
    LZ_REQUIRE(descriptor <= INT32_MAX && read_slot_of((int)descriptor, &head, &number, &slot),
               ZE_RESULT_ERROR_INVALID_ARGUMENT);
    write_handle((int)descriptor, number, slot.nonce, head.device, handle);
    return ZE_RESULT_SUCCESS;
}

LZ_CALL(zeMemGetFileDescriptorFromIpcHandleExp,
        (ze_context_handle_t context, ze_ipc_mem_handle_t opaque, uint64_t *descriptor),
        (context, opaque, descriptor)) {
    struct handle handle;
    LZ_CHECK(lz_check_context(context));
    LZ_POINTER(descriptor);
    LZ_CHECK(read_handle(&opaque, &handle));
    *descriptor = (uint64_t)handle.descriptor;
    return ZE_RESULT_SUCCESS;
}
