/* Device memory as a sparse anonymous file: it costs nothing until written, other processes can
 * map it through a descriptor, and nothing is left when its last user is gone, however it went.
 *
 * After the payload (`span` bytes) come a head that says what the file is, and the export table:
 * slots that name pieces of the payload, so that a handle can be checked against what is really
 * still there.  The file is sealed against any change of its size, so that no process can make
 * another one fault by truncating it.  memfd_create(2), fcntl(2) F_ADD_SEALS.
 */
#ifndef UMFPY_MODEL_FILE_H
#define UMFPY_MODEL_FILE_H

#include "common.h"

#define EMU_EXPORT_SLOTS 65536u /* in a file from which pieces are exported */

enum emu_file_kind { EMU_FILE_DEVICE = 1, EMU_FILE_POOL, EMU_FILE_PHYSICAL };

enum emu_slot_kind { EMU_SLOT_FREE = 0, EMU_SLOT_MEMORY, EMU_SLOT_EVENT, EMU_SLOT_POINTER };

/* One exported piece.  `nonce` is drawn afresh for each export: a handle must repeat it. */
struct emu_slot {
    uint64_t nonce;
    uint64_t offset, size;
    uint32_t kind;
    uint32_t serial;
};

struct emu_file_head {
    uint64_t magic;
    uint8_t id[16]; /* random: the same file, whatever descriptor it comes through */
    uint64_t span;
    uint32_t kind;
    uint32_t device;
    uint32_t shareable; /* as the driver's interface counts handle types */
    uint32_t slots;
};

struct emu_file {
    int fd;                /* -1: not open */
    uint64_t window;       /* addresses for programs, or 0 */
    unsigned char *shadow; /* the driver's mapping of the payload */
    uint64_t span;         /* private copies: others can write to the head */
    uint32_t slot_count;
    struct emu_file_head *head; /* and of the tail */
    struct emu_slot *slots;
    uint32_t cursor; /* where to look for a free slot next */
};

/* Make a file; with an export table where pieces of it are exported one by one. */
enum emu_status emu_file_create(struct emu_file *file, enum emu_file_kind kind, uint64_t span,
                                uint32_t device, uint32_t shareable, bool with_table);

/* Map a file that came from elsewhere, if it is one of ours of this kind; keeps its own copy of
 * `fd`.  The head is read from the file and trusted only as far as the sizes prove it. */
enum emu_status emu_file_adopt(struct emu_file *file, enum emu_file_kind kind, int fd);

void emu_file_close(struct emu_file *file);

/* Is `fd` such a file?  Then read its head. */
bool emu_file_read_head(int fd, enum emu_file_kind kind, struct emu_file_head *head);

/* Offset of slot `number` in a file with this head. */
uint64_t emu_slot_offset(const struct emu_file_head *head, uint32_t number);

/* Give the pages that lie wholly inside the piece back to the system; they read zero again. */
void emu_file_punch(struct emu_file *file, uint64_t offset, uint64_t size);

/* Addresses that no host access can touch, at a multiple of `alignment`; 0: no room.  With a
 * hint, there if it is free. */
uint64_t emu_window_open(uint64_t size, uint64_t alignment, uint64_t hint);
void emu_window_close(uint64_t window, uint64_t size);

/* Fill with random bytes; used where another process must not be able to guess. */
void emu_random(void *bytes, size_t size);

#endif
