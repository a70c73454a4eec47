#define _GNU_SOURCE
#include "file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC 0x31656c6966796675ull
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

void emu_random(void *bytes, size_t size) {
    /* 16 bytes at most: the kernel never answers such a request in part. */
    if (getrandom(bytes, size, 0) != (ssize_t)size)
        memset(bytes, 0x5a, size);
}

static uint64_t tail_size(uint32_t slots) {
    return emu_aligned(EMU_HOST_PAGE + slots * sizeof(struct emu_slot), EMU_HOST_PAGE);
}

uint64_t emu_slot_offset(const struct emu_file_head *head, uint32_t number) {
    return head->span + EMU_HOST_PAGE + number * sizeof(struct emu_slot);
}

uint64_t emu_window_open(uint64_t size, uint64_t alignment, uint64_t hint) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    if (size > UINT64_MAX / 2 - alignment)
        return 0;
    if (hint && emu_is_multiple(hint, alignment)) {
        void *there =
            mmap((void *)(uintptr_t)hint, size, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
        if (there == (void *)(uintptr_t)hint)
            return hint;
        if (there != MAP_FAILED)
            munmap(there, size);
    }
    /* The system aligns to pages only: take more and give the ends back. */
    void *raw = mmap(NULL, size + alignment, PROT_NONE, flags, -1, 0);
    if (raw == MAP_FAILED)
        return 0;
    uint64_t start = (uint64_t)(uintptr_t)raw;
    uint64_t window = (start + alignment - 1) & ~(alignment - 1);
    if (window > start)
        munmap(raw, window - start);
    if (start + alignment > window)
        munmap((void *)(uintptr_t)(window + size), start + alignment - window);
    madvise((void *)(uintptr_t)window, size, MADV_DONTDUMP);
    return window;
}

void emu_window_close(uint64_t window, uint64_t size) { munmap((void *)(uintptr_t)window, size); }

/* Map payload and tail; a forked child must not write to its parent's device. */
static bool map_file(struct emu_file *file, uint64_t span, uint32_t slots) {
    void *shadow =
        mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file->fd, 0);
    if (shadow == MAP_FAILED)
        return false;
    void *tail =
        mmap(NULL, tail_size(slots), PROT_READ | PROT_WRITE, MAP_SHARED, file->fd, (off_t)span);
    if (tail == MAP_FAILED) {
        munmap(shadow, span);
        return false;
    }
    madvise(shadow, span, MADV_DONTFORK);
    madvise(shadow, span, MADV_DONTDUMP);
    madvise(tail, tail_size(slots), MADV_DONTFORK);
    file->shadow = shadow;
    file->span = span;
    file->slot_count = slots;
    file->head = tail;
    file->slots = (struct emu_slot *)((unsigned char *)tail + EMU_HOST_PAGE);
    return true;
}

enum emu_status emu_file_create(struct emu_file *file, enum emu_file_kind kind, uint64_t span,
                                uint32_t device, uint32_t shareable, bool with_table) {
    uint32_t slots = with_table ? EMU_EXPORT_SLOTS : 0;
    *file = (struct emu_file){.fd = memfd_create("umfpy-device", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    if (file->fd < 0)
        return EMU_SYSTEM;
    if (ftruncate(file->fd, (off_t)(span + tail_size(slots))) ||
        fcntl(file->fd, F_ADD_SEALS, SEALS) || !map_file(file, span, slots)) {
        close(file->fd);
        file->fd = -1;
        return EMU_NO_MEMORY;
    }
    *file->head = (struct emu_file_head){
        .magic = MAGIC,
        .span = span,
        .kind = kind,
        .device = device,
        .shareable = shareable,
        .slots = slots,
    };
    emu_random(file->head->id, sizeof file->head->id);
    return EMU_OK;
}

/* The head lies at an offset that the head itself names: try what the size of the file allows. */
static bool find_head(int fd, uint64_t size, struct emu_file_head *head) {
    const uint32_t tails[] = {0, EMU_EXPORT_SLOTS};
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        uint64_t tail = tail_size(tails[i]);
        if (size <= tail)
            continue;
        ssize_t got = pread(fd, head, sizeof *head, (off_t)(size - tail));
        if (got == (ssize_t)sizeof *head && head->magic == MAGIC && head->span == size - tail &&
            head->slots == tails[i])
            return true;
    }
    return false;
}

bool emu_file_read_head(int fd, enum emu_file_kind kind, struct emu_file_head *head) {
    struct stat status;
    if (fstat(fd, &status) || !S_ISREG(status.st_mode) || status.st_size <= 0)
        return false;
    if (fcntl(fd, F_GET_SEALS) != SEALS)
        return false;
    return find_head(fd, (uint64_t)status.st_size, head) && head->kind == (uint32_t)kind;
}

enum emu_status emu_file_adopt(struct emu_file *file, enum emu_file_kind kind, int fd) {
    struct emu_file_head head;
    if (!emu_file_read_head(fd, kind, &head))
        return EMU_STALE;
    *file = (struct emu_file){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0)};
    if (file->fd < 0)
        return EMU_SYSTEM;
    if (!map_file(file, head.span, head.slots)) {
        close(file->fd);
        file->fd = -1;
        return EMU_NO_MEMORY;
    }
    return EMU_OK;
}

void emu_file_close(struct emu_file *file) {
    if (file->fd < 0)
        return;
    munmap(file->head, tail_size(file->slot_count));
    munmap(file->shadow, file->span);
    if (file->window)
        emu_window_close(file->window, file->span);
    close(file->fd);
    *file = (struct emu_file){.fd = -1};
}

void emu_file_punch(struct emu_file *file, uint64_t offset, uint64_t size) {
    uint64_t start = (offset + EMU_HOST_PAGE - 1) & ~(EMU_HOST_PAGE - 1);
    uint64_t end = (offset + size) & ~(EMU_HOST_PAGE - 1);
    if (end > start)
        fallocate(file->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)start,
                  (off_t)(end - start));
}
