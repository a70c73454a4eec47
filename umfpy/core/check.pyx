# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The invariants of the extent map; each function checks one kind."""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.bins cimport FIRST, NO_BIN, SECOND, Bins, bin_of, bins_find, bins_head
from umfpy.core.extent_map cimport map_exact, map_locate
from umfpy.core.regions cimport Regions, region_of
from umfpy.core.structs cimport (
    FIRST_STREAM,
    HIDDEN,
    HOSTS,
    UNINDEXED,
    Extent,
    Map,
    extent_of,
    is_backed,
    is_busy,
    is_used,
    requested_of,
    span_of,
    tag_of,
)

# What the walk over all extents adds up.
cdef struct Sums:
    uint64_t used
    uint64_t requested
    uint64_t reserved
    uint64_t unbacked
    uint64_t hidden
    uint64_t used_blocks
    uint64_t free_blocks
    uint64_t indexed
    uint64_t entries  # of `Map.blocks`


cdef const char* map_check(Map* m, bint full) noexcept nogil:
    cdef Sums sums
    cdef const char* broken = check_counters(m)
    if broken != NULL or not full:
        return broken
    broken = check_extents(m, &sums)
    if broken == NULL:
        broken = check_sums(m, &sums)
    if broken == NULL:
        broken = check_bins(m, sums.free_blocks)
    if broken == NULL:
        broken = check_free_extents(m)
    return broken


cdef const char* check_counters(const Map* m) noexcept nogil:
    if m.counters.requested > m.counters.used:
        return b"requested <= used"
    if m.counters.used > m.counters.reserved:
        return b"used <= reserved"
    if m.counters.hidden > m.counters.reserved - m.counters.used:
        return b"hidden <= reserved - used"
    if m.counters.frees > m.counters.allocations:
        return b"frees <= allocations"
    if m.counters.peak_used < m.counters.used or m.counters.peak_reserved < m.counters.reserved:
        return b"a peak is the highest its counter has been"
    return NULL


cdef const char* check_extents(Map* m, Sums* sums) noexcept nogil:
    cdef uint32_t i
    cdef const char* broken
    sums[0] = Sums(0, 0, 0, 0, 0, 0, 0, 0, 1)
    for i in range(1, m.extents_used):
        if m.extents[i].size == 0:
            continue
        broken = check_tiling(m, i, sums)
        if broken == NULL and m.extents[i].regions != NULL:
            broken = check_regions(m, i)
        if broken != NULL:
            return broken
    return NULL


cdef const char* check_tiling(Map* m, uint32_t extent, Sums* sums) noexcept nogil:
    """Blocks tile the extent, each knows its neighbours, and free ones are merged."""
    cdef const Extent* entry = &m.extents[extent]
    cdef uint32_t block = entry.first
    cdef const char* broken
    if m.blocks[block].start != entry.base or m.blocks[block].prev != 0:
        return b"the first block starts at the extent's base"
    if not entry.base <= entry.fresh <= entry.base + entry.size:
        return b"the frontier of an extent lies in it"
    while block != entry.sentinel:
        sums.entries += 1
        if extent_of(m, block) != extent:
            return b"a block knows its extent"
        if m.blocks[m.blocks[block].next].prev != block:
            return b"neighbours know each other"
        if m.blocks[m.blocks[block].next].start <= m.blocks[block].start:
            return b"blocks ascend and none is empty"
        broken = check_used(m, block, sums) if is_used(m, block) else check_free(m, block, sums)
        if broken != NULL:
            return broken
        block = m.blocks[block].next
    sums.entries += 1
    if m.blocks[block].start != entry.base + entry.size or m.blocks[block].next != 0:
        return b"the sentinel stands at the extent's end"
    if not is_used(m, block):
        return b"the sentinel is never free"
    return NULL


cdef const char* check_used(Map* m, uint32_t block, Sums* sums) noexcept nogil:
    """A used block is found from each of its addresses."""
    cdef uint64_t start = m.blocks[block].start
    cdef uint64_t span = span_of(m, block)
    cdef uint32_t extent = extent_of(m, block)
    sums.used_blocks += 1
    sums.used += span
    sums.reserved += span
    sums.requested += requested_of(m, block)
    if (m.blocks[block].slack & ~<uint32_t>HOSTS) > span:
        return b"slack <= span"
    if start + span > m.extents[extent].fresh:
        return b"nothing that is used lies beyond the frontier of its extent"
    if m.blocks[block].chain != <uint32_t>UNINDEXED:
        sums.indexed += 1
        if map_exact(m, start) != block:
            return b"an indexed block is found by its start"
    elif map_exact(m, start) != 0:
        return b"an owned block is not found by its start"
    if (
        map_locate(m, extent, start) != block
        or map_locate(m, extent, start + span // 2) != block
        or map_locate(m, extent, start + span - 1) != block
    ):
        return b"a used block is found from each of its addresses"
    return NULL


cdef const char* check_free(Map* m, uint32_t block, Sums* sums) noexcept nogil:
    """A free block has no free neighbour of its tag, stands in its bin, and is not found."""
    cdef uint32_t after = m.blocks[block].next
    cdef uint64_t start = m.blocks[block].start
    cdef uint32_t entry
    sums.free_blocks += 1
    add_free(tag_of(m, block), span_of(m, block), sums)
    if not is_used(m, after) and m.blocks[after].home == m.blocks[block].home:
        return b"no two free neighbours of one tag"
    if map_exact(m, start) != 0 or map_locate(m, extent_of(m, block), start) != 0:
        return b"a free block is not found"
    if m.shelves[tag_of(m, block)] == NULL:
        return b"a free block stands in the bin of its size and tag"
    entry = bins_head(<Bins*>&m.shelves[tag_of(m, block)].bins,
                      bin_of(span_of(m, block) >> m.granule_shift))[0]
    while entry and entry != block:
        entry = m.blocks[entry].chain
    if entry == 0:
        return b"a free block stands in the bin of its size and tag"
    return NULL


cdef void add_free(uint32_t tag, uint64_t span, Sums* sums) noexcept nogil:
    if is_backed(tag):
        sums.reserved += span
    else:
        sums.unbacked += span
    if tag == HIDDEN:
        sums.hidden += span


cdef const char* check_regions(const Map* m, uint32_t extent) noexcept nogil:
    """Each region names the last used block that starts in it; the bits say which have one."""
    cdef const Regions* regions = m.extents[extent].regions
    cdef uint64_t region
    cdef uint32_t block = m.extents[extent].first
    cdef uint32_t last
    for region in range(regions.count):
        last = 0
        while block != m.extents[extent].sentinel and (
            region_of(regions, m.blocks[block].start) == region
        ):
            if is_used(m, block):
                last = block
            block = m.blocks[block].next
        if regions.last[region] != last:
            return b"a region names the last used block that starts in it"
        if ((regions.bits[0][region >> 6] >> (region & 63)) & 1) != (last != 0):
            return b"a region's bit is set exactly when it names a block"
    return check_summaries(regions)


cdef const char* check_summaries(const Regions* regions) noexcept nogil:
    cdef uint64_t words = ((regions.count - 1) >> 6) + 1
    cdef uint64_t word
    cdef int level = 0
    while level + 1 < regions.levels:
        for word in range(words):
            if ((regions.bits[level + 1][word >> 6] >> (word & 63)) & 1) != (
                regions.bits[level][word] != 0
            ):
                return b"a summary bit is set exactly when its word is not zero"
        words = ((words - 1) >> 6) + 1
        level += 1
    return NULL


cdef const char* check_sums(const Map* m, const Sums* sums) noexcept nogil:
    cdef uint64_t entries = sums.entries
    cdef uint32_t unused = m.blocks_unused
    if sums.used != m.counters.used or sums.requested != m.counters.requested:
        return b"the counters of used bytes equal the sums over blocks"
    if sums.reserved != m.counters.reserved:
        return b"the counter of reserved bytes equals the sum over blocks that have memory"
    if sums.unbacked != m.counters.unbacked:
        return b"the counter of unbacked bytes equals the sum over blocks without memory"
    if sums.hidden != m.counters.hidden:
        return b"the counter of hidden bytes equals the sum over hidden blocks"
    if sums.used_blocks != m.counters.allocations - m.counters.frees:
        return b"allocations less frees are the used blocks"
    if sums.indexed != m.indexed:
        return b"the index holds every indexed block"
    while unused:
        entries += 1
        unused = m.blocks[unused].next
    if entries != m.blocks_used:
        return b"every entry is a block, a sentinel or unused"
    return NULL


cdef const char* check_bins(const Map* m, uint64_t free_blocks) noexcept nogil:
    """A bitmap's bit is set exactly when the bin holds a block; bins hold only free blocks."""
    cdef uint64_t binned = 0
    cdef uint32_t tag
    cdef const char* broken
    for tag in range(FIRST_STREAM + m.streams):
        if m.shelves[tag] == NULL:
            continue
        if tag >= FIRST_STREAM and m.streams <= 1 and m.shelves[tag].bins.first_map:
            return b"one stream alone keeps its free memory on the safe shelf"
        broken = check_bitmaps(&m.shelves[tag].bins)
        if broken == NULL:
            broken = check_lists(m, tag, &binned)
        if broken != NULL:
            return broken
    if binned != free_blocks:
        return b"every free block stands in one bin"
    return NULL


cdef const char* check_bitmaps(const Bins* bins) noexcept nogil:
    cdef uint32_t first
    cdef uint32_t second
    cdef uint32_t any_head
    for first in range(FIRST):
        if ((bins.first_map >> first) & 1) != (bins.second_map[first] != 0):
            return b"a row's bit is set exactly when a bin of it holds a block"
        # Most rows are empty, and seen to be so by a few vector instructions.
        any_head = bins.second_map[first]
        for second in range(SECOND):
            any_head |= bins.heads[first][second]
        if any_head == 0:
            continue
        for second in range(SECOND):
            if ((bins.second_map[first] >> second) & 1) != (bins.heads[first][second] != 0):
                return b"a bin's bit is set exactly when it holds a block"
    return NULL


cdef const char* check_lists(const Map* m, uint32_t tag, uint64_t* binned) noexcept nogil:
    cdef Bins* bins = <Bins*>&m.shelves[tag].bins
    cdef uint32_t bin = bins_find(bins, 0)
    cdef uint32_t block
    cdef uint32_t before
    while bin != <uint32_t>NO_BIN:  # the bitmaps are right, so that no other bin holds any
        block = bins_head(bins, bin)[0]
        before = 0
        while block:
            binned[0] += 1
            if is_used(m, block) or tag_of(m, block) != tag or m.blocks[block].slack != before:
                return b"a bin's list holds free blocks of its tag, linked both ways"
            before = block
            block = m.blocks[block].chain
        bin = bins_find(bins, bin + 1)
    return NULL


cdef const char* check_free_extents(const Map* m) noexcept nogil:
    """The list of wholly free extents holds them all and nothing else."""
    cdef uint32_t i
    cdef uint64_t free_extents = 0
    cdef uint32_t listed = m.extents_free
    for i in range(1, m.extents_used):
        if m.extents[i].size == 0:
            continue
        if m.extents[i].wholly_free != (
            not is_used(m, m.extents[i].first)
            and m.blocks[m.extents[i].first].next == m.extents[i].sentinel
            and not is_busy(tag_of(m, m.extents[i].first))
        ):
            return b"an extent is marked wholly free exactly when it is one free, idle block"
        free_extents += m.extents[i].wholly_free
    while listed:
        if not m.extents[listed].wholly_free:
            return b"the list of free extents holds only those"
        free_extents -= 1
        listed = m.extents[listed].next_free
    if free_extents != 0:
        return b"the list of free extents holds them all"
    return NULL
