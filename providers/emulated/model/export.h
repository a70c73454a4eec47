/* Pieces of a device's memory, named so that another process can open them.
 *
 * A handle is 64 bytes that say where the exporter keeps its file (process, its start time,
 * descriptor, inode), which slot of the export table names the piece, and the nonce that the slot
 * must still hold; a checksum covers every byte.  Freeing the memory empties the slot, so that an
 * old handle is refused even when its address is in use again.  Nothing a handle says is
 * believed before the file confirms it.
 */
#ifndef UMFPY_MODEL_EXPORT_H
#define UMFPY_MODEL_EXPORT_H

#include "memory.h"

#define EMU_HANDLE_BYTES 64

struct emu_export {
    struct emu_object object; /* counted */
    struct emu_file *file;
    uint32_t slot;
    uint64_t nonce;
};

/* Enter [offset, offset + size) of `file` in its export table. */
enum emu_status emu_export_enter(struct emu_file *file, enum emu_slot_kind kind, uint64_t offset,
                                 uint64_t size, struct emu_export **export);
void emu_export_withdraw(struct emu_export *export);

/* The handle of allocated device memory; the same one until it is freed. */
enum emu_status emu_export_memory(struct emu_memory *memory,
                                  unsigned char handle[EMU_HANDLE_BYTES]);

/* Write the handle of an entry. */
enum emu_status emu_handle_write(const struct emu_export *export,
                                 unsigned char handle[EMU_HANDLE_BYTES]);

/* Open another process's memory for `owner`; again, the same addresses, counted. */
enum emu_status emu_open_memory(const unsigned char handle[EMU_HANDLE_BYTES], void *owner,
                                struct emu_memory **memory);

/* Open what `slot` of the file behind `fd` says, as memory of `device`, at addresses of its own;
 * emu_memory_free undoes it. */
enum emu_status emu_open_slot(int fd, const struct emu_slot *slot, unsigned device, void *owner,
                              struct emu_memory **memory);

/* Undo one emu_open_memory.  The mapping goes with the last. */
void emu_close_memory(struct emu_memory *memory);

/* Is this the handle of an event that still exists, in another process or in this one? */
enum emu_status emu_check_event(const unsigned char handle[EMU_HANDLE_BYTES]);

/* Find what a slot of an adopted file says, if it still holds `nonce`. */
bool emu_slot_read(int fd, const struct emu_file_head *head, uint32_t number,
                   enum emu_slot_kind kind, uint64_t nonce, struct emu_slot *slot);

/* Used by emu_memory_free: drop the mapping of opened memory. */
void emu_open_unmap(struct emu_memory *memory);

/* Of bytes from elsewhere: a 64-bit FNV-1a. */
uint64_t emu_checksum(const void *bytes, size_t size);

#endif
