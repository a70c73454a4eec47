#include "space.h"

#include <stdlib.h>

static unsigned bin_of(uint64_t size) { return 63u - (unsigned)__builtin_clzll(size); }

static void bin_add(struct emu_space *space, struct emu_tile *tile) {
    struct emu_tile **bin = &space->bins[bin_of(tile->size)];
    tile->free = true;
    tile->newer = NULL;
    tile->older = *bin;
    if (*bin)
        (*bin)->newer = tile;
    *bin = tile;
}

static void bin_remove(struct emu_space *space, struct emu_tile *tile) {
    if (tile->newer)
        tile->newer->older = tile->older;
    else
        space->bins[bin_of(tile->size)] = tile->older;
    if (tile->older)
        tile->older->newer = tile->newer;
    tile->free = false;
}

bool emu_space_open(struct emu_space *space, uint64_t start, uint64_t size) {
    *space = (struct emu_space){0};
    struct emu_tile *tile = calloc(1, sizeof *tile);
    if (!tile)
        return false;
    tile->start = start;
    tile->size = size;
    space->first = tile;
    bin_add(space, tile);
    return true;
}

void emu_space_close(struct emu_space *space) {
    for (struct emu_tile *tile = space->first, *after; tile; tile = after) {
        after = tile->after;
        free(tile);
    }
    *space = (struct emu_space){0};
}

static uint64_t aligned_start(const struct emu_tile *tile, uint64_t alignment) {
    return (tile->start + alignment - 1) & ~(alignment - 1);
}

static bool fits(const struct emu_tile *tile, uint64_t size, uint64_t alignment) {
    uint64_t lost = aligned_start(tile, alignment) - tile->start;
    return lost <= tile->size && tile->size - lost >= size;
}

/* The first tile that fits, among the newest `most` of each list. */
static struct emu_tile *find_among(struct emu_space *space, uint64_t size, uint64_t alignment,
                                   unsigned most) {
    for (unsigned bin = bin_of(size); bin < 64; bin++) {
        unsigned seen = 0;
        for (struct emu_tile *tile = space->bins[bin]; tile && seen < most;
             tile = tile->older, seen++)
            if (fits(tile, size, alignment))
                return tile;
    }
    return NULL;
}

/* In the lists of tiles of at least twice size and alignment everything fits, so that a few
 * looks at the lists below lose little.  Only a space that is nearly full is searched whole. */
static struct emu_tile *find_free(struct emu_space *space, uint64_t size, uint64_t alignment) {
    struct emu_tile *tile = find_among(space, size, alignment, 8);
    return tile ? tile : find_among(space, size, alignment, UINT32_MAX);
}

/* Cut `tile` (not in a bin) so that its first `size` bytes stay; the rest becomes a new tile. */
static struct emu_tile *cut(struct emu_tile *tile, uint64_t size) {
    struct emu_tile *rest = calloc(1, sizeof *rest);
    if (!rest)
        return NULL;
    rest->start = tile->start + size;
    rest->size = tile->size - size;
    rest->before = tile;
    rest->after = tile->after;
    if (rest->after)
        rest->after->before = rest;
    tile->after = rest;
    tile->size = size;
    return rest;
}

struct emu_tile *emu_space_take(struct emu_space *space, uint64_t size, uint64_t alignment) {
    struct emu_tile *tile = find_free(space, size, alignment);
    if (!tile)
        return NULL;
    bin_remove(space, tile);
    uint64_t lost = aligned_start(tile, alignment) - tile->start;
    if (lost) {
        struct emu_tile *aligned = cut(tile, lost);
        bin_add(space, tile);
        if (!aligned)
            return NULL;
        tile = aligned;
    }
    if (tile->size > size) {
        struct emu_tile *rest = cut(tile, size);
        if (!rest) {
            emu_space_give(space, tile);
            return NULL;
        }
        bin_add(space, rest);
    }
    return tile;
}

/* Join `tile` with its upper neighbour, which is not in a bin any more. */
static void absorb_after(struct emu_tile *tile) {
    struct emu_tile *gone = tile->after;
    tile->size += gone->size;
    tile->after = gone->after;
    if (tile->after)
        tile->after->before = tile;
    free(gone);
}

void emu_space_give(struct emu_space *space, struct emu_tile *tile) {
    if (tile->after && tile->after->free) {
        bin_remove(space, tile->after);
        absorb_after(tile);
    }
    if (tile->before && tile->before->free) {
        tile = tile->before;
        bin_remove(space, tile);
        absorb_after(tile);
    }
    bin_add(space, tile);
}
