#include "transfer.h"

#include "physical.h"

#include <string.h>

/* The driver's view of the bytes at `address`, and how many follow it in the same range. */
struct view {
    unsigned char *bytes;
    uint64_t length;
    bool *written;  /* to be set when bytes are written, or NULL */
    bool continues; /* may go on in the next range */
};

static bool view_range(struct emu_memory *memory, struct emu_side side, uint8_t access,
                       struct view *view) {
    uint64_t inside = side.address - memory->object.node.base;
    view->length = memory->object.node.size - inside;
    if (memory->physical) {
        if ((memory->access[side.device] & access) != access)
            return false;
        view->bytes = memory->physical->bytes + memory->offset + inside;
        view->written = &memory->physical->written;
        view->continues = true;
    } else {
        view->bytes = memory->bytes + inside;
        view->written = &memory->written;
    }
    return true;
}

static bool view_of(struct emu_side side, uint8_t access, struct view *view) {
    *view = (struct view){0};
    struct emu_memory *memory = emu_memory_find(side.address);
    if (memory && (side.known || memory->object.kind != EMU_REGISTERED))
        return view_range(memory, side, access, view);
    if (side.known || emu_is_device_address(side.address) || !side.address)
        return false;
    view->bytes = (unsigned char *)(uintptr_t)side.address;
    view->length = UINT64_MAX - side.address;
    return true;
}

static bool mapping_at(uint64_t address) { return emu_memory_at(EMU_MAPPING, address) != NULL; }

bool emu_is_usable(struct emu_side side, uint64_t size, uint8_t access) {
    struct view view;
    if (size > UINT64_MAX - side.address)
        return false;
    while (size) {
        if (!view_of(side, access, &view))
            return false;
        if (view.length >= size)
            return true;
        if (!view.continues || !mapping_at(side.address + view.length))
            return false;
        side.address += view.length;
        size -= view.length;
    }
    return true;
}

static void mark_written(const struct view *view) {
    if (view->written)
        *view->written = true;
}

static uint64_t least(uint64_t a, uint64_t b) { return a < b ? a : b; }

/* Copy what was checked, in pieces that lie in one range on both sides.  Overlap within one
 * piece is kept right; across pieces it is undefined, as with the hardware. */
static void move_pieces(struct emu_side to, struct emu_side from, uint64_t size) {
    struct view target, source;
    while (size) {
        view_of(to, EMU_WRITE, &target);
        view_of(from, EMU_READ, &source);
        uint64_t piece = least(size, least(target.length, source.length));
        mark_written(&target);
        memmove(target.bytes, source.bytes, piece);
        to.address += piece;
        from.address += piece;
        size -= piece;
    }
}

enum emu_status emu_copy(struct emu_side to, struct emu_side from, uint64_t size) {
    if (!emu_is_usable(to, size, EMU_WRITE) || !emu_is_usable(from, size, EMU_READ))
        return EMU_INVALID;
    move_pieces(to, from, size);
    return EMU_OK;
}

static void fill_piece(unsigned char *bytes, unsigned width, uint32_t value, uint64_t size) {
    if (width == 1) {
        memset(bytes, (int)(value & 0xff), size);
        return;
    }
    for (uint64_t i = 0; i < size; i += width)
        memcpy(bytes + i, &value, width); /* little-endian, as the hosts of CUDA are */
}

enum emu_status emu_fill(struct emu_side side, unsigned width, uint32_t value, uint64_t count) {
    if (!emu_is_multiple(side.address, width) || count > UINT64_MAX / width)
        return EMU_INVALID;
    uint64_t size = count * width;
    if (!emu_is_usable(side, size, EMU_WRITE))
        return EMU_INVALID;
    for (struct view view; size;) {
        view_of(side, EMU_WRITE, &view);
        uint64_t piece = least(size, view.length);
        mark_written(&view);
        fill_piece(view.bytes, width, value, piece);
        side.address += piece;
        size -= piece;
    }
    return EMU_OK;
}
