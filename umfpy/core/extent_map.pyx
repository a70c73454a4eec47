# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The extent map's bodies; `extent_map.pxd` says what each does, DESIGN.md why."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from umfpy.core.bins cimport NO_BIN, Bins, bins_find, bins_head
from umfpy.core.entries cimport give_block, reserve_blocks, take_block, take_extent
from umfpy.core.places cimport build_regions, locate_any, nearest_below, note_free, note_used
from umfpy.core.regions cimport regions_bytes, regions_delete
from umfpy.core.shelves cimport find_fit, make_shelf, shelve, unshelve
from umfpy.core.starts cimport index_block, reserve_index, slot_of, unindex_block
from umfpy.core.structs cimport (
    DONE,
    FIRST_STREAM,
    HOSTS,
    MAX_EXTENTS,
    MAX_SLACK,
    NO_FIT,
    NO_HOST_MEMORY,
    RETIRING,
    SAFE,
    TAG_BITS,
    TAG_MASK,
    TOO_MANY_EXTENTS,
    TOO_MANY_STREAMS,
    UNBACKED,
    UNINDEXED,
    Block,
    Extent,
    Map,
    Shelf,
    Status,
    Stretch,
    extent_of,
    is_apart,
    is_backed,
    is_busy,
    is_used,
    lead_of,
    padded,
    requested_of,
    shelf_tag,
    span_of,
    tag_of,
)
from umfpy.core.tiling cimport (
    absorb,
    carve,
    count_in,
    count_out,
    cut,
    set_tag,
    settle,
    unlist_free_extent,
)

cdef enum:
    FIRST_BLOCKS = 64  # capacities to start with; each doubles when full
    FIRST_EXTENTS = 8
    FIRST_HASH_SHIFT = 58


# --- Life ------------------------------------------------------------------------------------


cdef Status map_init(
    Map* m, int granule_shift, bint ordered, uint32_t scan, uint64_t low_from
) noexcept nogil:
    memset(m, 0, sizeof(Map))
    m.granule_shift = granule_shift
    m.ordered = ordered
    m.scan = scan
    m.low_from = low_from
    m.hash_shift = FIRST_HASH_SHIFT
    m.hash = <uint32_t*>calloc(1 << (64 - FIRST_HASH_SHIFT), sizeof(uint32_t))
    m.shelves = <Shelf**>calloc(TAG_MASK + 1, sizeof(void*))
    m.blocks = <Block*>calloc(FIRST_BLOCKS, sizeof(Block))
    m.extents = <Extent*>calloc(FIRST_EXTENTS, sizeof(Extent))
    if not (m.hash and m.shelves and m.blocks and m.extents):
        map_clear(m)
        return NO_HOST_MEMORY
    m.blocks_capacity = FIRST_BLOCKS
    m.extents_capacity = FIRST_EXTENTS
    # Entry 0 is the neighbour of blocks that have none: used, so that nothing merges with it.
    m.blocks[0].generation = 1
    m.blocks_used = 1
    m.extents_used = 1
    if make_shelf(m, SAFE) != DONE or make_shelf(m, RETIRING) != DONE:
        map_clear(m)
        return NO_HOST_MEMORY
    return DONE


cdef void map_clear(Map* m) noexcept nogil:
    cdef uint32_t i
    if m.extents != NULL:
        for i in range(1, m.extents_used):
            regions_delete(m.extents[i].regions)
    if m.shelves != NULL:
        for i in range(TAG_MASK + 1):
            free(m.shelves[i])
    free(m.shelves)
    free(m.extents)
    free(m.blocks)
    free(m.hash)
    m.shelves = NULL
    m.extents = NULL
    m.blocks = NULL
    m.hash = NULL


cdef uint64_t map_metadata_bytes(const Map* m) noexcept nogil:
    cdef uint64_t total = sizeof(Map) + (TAG_MASK + 1) * sizeof(void*)
    cdef uint32_t i
    total += m.blocks_capacity * sizeof(Block) + m.extents_capacity * sizeof(Extent)
    total += (<uint64_t>1 << (64 - m.hash_shift)) * sizeof(uint32_t)
    for i in range(1, m.extents_used):
        if m.extents[i].regions != NULL:
            total += regions_bytes(m.extents[i].regions)
    for i in range(TAG_MASK + 1):
        if m.shelves[i] != NULL:
            total += sizeof(Shelf)
    return total


# --- Entries of the arrays -------------------------------------------------------------------


# --- Free blocks by size: shelves and bins ---------------------------------------------------


# --- Used blocks by address: the hash of starts ----------------------------------------------


cdef uint32_t map_exact(const Map* m, uint64_t start) noexcept nogil:
    cdef uint32_t block = m.hash[slot_of(m, start)]
    while block and m.blocks[block].start != start:
        block = m.blocks[block].chain
    # A block that is pending is free, and still in its chain.
    return block if is_used(m, block) else 0


# --- Used blocks by any address: the regions -------------------------------------------------


cdef uint32_t map_locate(Map* m, uint32_t extent, uint64_t address) noexcept nogil:
    cdef uint32_t block
    if m.extents[extent].regions == NULL:
        map_settle(m)
        build_regions(m, extent)
    block = nearest_below(m, extent, address)
    # Down to the block that covers the address: blocks tile, so the first to start at or below.
    while m.blocks[block].start > address:
        block = m.blocks[block].prev
    if block == 0 or not is_used(m, block) or m.blocks[m.blocks[block].next].start <= address:
        return 0
    return block


# --- Extents ---------------------------------------------------------------------------------


cdef Status map_add_extent(
    Map* m, uint64_t base, uint64_t size, uint32_t tag, bint fresh, uint32_t* extent
) noexcept nogil:
    cdef Extent* entry
    cdef uint32_t index
    if m.extents_unused == 0 and m.extents_used > MAX_EXTENTS:
        return TOO_MANY_EXTENTS
    if not reserve_blocks(m, 2) or make_shelf(m, tag) != DONE:
        return NO_HOST_MEMORY
    index = take_extent(m)
    if index == 0:
        return NO_HOST_MEMORY
    entry = &m.extents[index]
    entry.regions = NULL
    entry.base = base
    entry.size = size
    entry.fresh = base if fresh else base + size
    entry.wholly_free = False
    entry.first = take_block(m)
    entry.sentinel = take_block(m)
    lay_block(m, entry.first, base, 0, entry.sentinel, index)
    lay_block(m, entry.sentinel, base + size, entry.first, 0, index)
    m.blocks[entry.first].home |= tag
    m.blocks[entry.sentinel].generation |= 1  # never free
    count_in(&m.counters, tag, size)
    settle(m, entry.first)
    extent[0] = index
    return DONE


cdef inline void lay_block(
    Map* m, uint32_t block, uint64_t start, uint32_t before, uint32_t after, uint32_t extent
) noexcept nogil:
    m.blocks[block].start = start
    m.blocks[block].prev = before
    m.blocks[block].next = after
    m.blocks[block].home = (extent << TAG_BITS) | SAFE


cdef void map_remove_extent(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    unshelve(m, entry.first)
    unlist_free_extent(m, extent)
    count_out(&m.counters, tag_of(m, entry.first), entry.size)
    m.blocks[entry.sentinel].generation += 1
    give_block(m, entry.first)
    give_block(m, entry.sentinel)
    regions_delete(entry.regions)
    entry.regions = NULL
    entry.size = 0
    entry.next_free = m.extents_unused
    m.extents_unused = extent


cdef bint map_unite(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    cdef uint32_t block = entry.first
    map_settle(m)
    while block != entry.sentinel:
        if is_used(m, block) or is_busy(tag_of(m, block)):
            return False
        block = m.blocks[block].next
    if entry.wholly_free:
        return True
    if make_shelf(m, UNBACKED) != DONE:
        return False
    withdraw(m, entry.first)
    while m.blocks[entry.first].next != entry.sentinel:
        block = m.blocks[entry.first].next
        withdraw(m, block)
        absorb(m, entry.first, block)
    settle(m, entry.first)
    return True


cdef inline void withdraw(Map* m, uint32_t block) noexcept nogil:
    """Take a free block out of its bin, as one without backing."""
    cdef uint64_t span = span_of(m, block)
    unshelve(m, block)
    count_out(&m.counters, tag_of(m, block), span)
    count_in(&m.counters, UNBACKED, span)
    set_tag(m, block, UNBACKED)


# --- Streams ---------------------------------------------------------------------------------


cdef Status map_find_tag(Map* m, uint64_t stream, uint32_t* tag) noexcept nogil:
    cdef uint32_t t = FIRST_STREAM
    while t < FIRST_STREAM + m.streams and m.shelves[t].stream != stream:
        t += 1
    if t == FIRST_STREAM + m.streams and name_stream(m, stream, &t) != DONE:
        return TOO_MANY_STREAMS if t > TAG_MASK else NO_HOST_MEMORY
    m.tag_cache[tag_slot(stream)] = t
    tag[0] = t
    return DONE


cdef Status name_stream(Map* m, uint64_t stream, uint32_t* tag) noexcept nogil:
    """Give a new stream its tag: a fresh one, or one whose stream has nothing here any more."""
    cdef uint32_t t = FIRST_STREAM + m.streams
    map_settle(m)
    if t > TAG_MASK:
        t = find_idle_tag(m)
        if t:
            m.shelves[t].stream = stream
            tag[0] = t
            return DONE
        tag[0] = TAG_MASK + 1
        return TOO_MANY_STREAMS
    if make_shelf(m, t) != DONE:
        return NO_HOST_MEMORY
    m.shelves[t].stream = stream
    m.streams += 1
    if m.streams == 2:
        # Alone, the first stream had no need to keep its free memory apart; now it has.
        map_restamp(m, SAFE, FIRST_STREAM)
    tag[0] = t
    return DONE


cdef uint32_t find_idle_tag(Map* m) noexcept nogil:
    """A tag that no block carries, 0 for none.  Reads every block: only a full table comes here."""
    cdef uint32_t t
    cdef uint32_t i
    cdef bint[0x1000] carried
    memset(carried, 0, sizeof(carried))
    for i in range(1, m.blocks_used):
        if is_used(m, i):
            carried[tag_of(m, i)] = True
    for t in range(FIRST_STREAM, TAG_MASK + 1):
        if not carried[t] and m.shelves[t].bins.first_map == 0:
            return t
    return 0


cdef void map_restamp(Map* m, uint32_t from_tag, uint32_t to_tag) noexcept nogil:
    cdef Bins* bins = &m.shelves[from_tag].bins
    cdef uint32_t bin
    cdef uint32_t block
    map_settle(m)
    bin = bins_find(bins, 0)
    while bin != <uint32_t>NO_BIN:
        block = bins_head(bins, bin)[0]
        unshelve(m, block)
        if m.extents[extent_of(m, block)].wholly_free:
            unlist_free_extent(m, extent_of(m, block))
        set_tag(m, block, to_tag)
        settle(m, block)
        bin = bins_find(bins, bin)


# --- States ----------------------------------------------------------------------------------


cdef Status map_retag(
    Map* m, uint32_t extent, uint64_t start, uint64_t size, uint32_t from_tag, uint32_t to_tag
) noexcept nogil:
    cdef const Extent* entry = &m.extents[extent]
    cdef uint32_t block
    cdef uint32_t cuts
    if start < entry.base or size > entry.size or start - entry.base > entry.size - size:
        return NO_FIT
    map_settle(m)
    block = locate_any(m, extent, start)
    if is_used(m, block) or tag_of(m, block) != from_tag or (
        m.blocks[m.blocks[block].next].start - start < size
    ):
        return NO_FIT
    # A whole block needs no other one: giving up what was set apart goes without host memory.
    cuts = (start > m.blocks[block].start) + (m.blocks[m.blocks[block].next].start > start + size)
    if not reserve_blocks(m, cuts) or make_shelf(m, to_tag) != DONE:
        return NO_HOST_MEMORY
    block = carve(m, block, start - m.blocks[block].start, size)
    set_tag(m, block, to_tag)
    if is_backed(to_tag) and not is_backed(from_tag):
        # What is behind it now may be any memory, with any contents.
        m.extents[extent].fresh = max(m.extents[extent].fresh, start + size)
    count_out(&m.counters, from_tag, size)
    count_in(&m.counters, to_tag, size)
    settle(m, block)
    return DONE


# --- Blocks ----------------------------------------------------------------------------------


cdef Status map_search(
    Map* m, uint64_t size, uint64_t alignment, uint32_t tag, bint index, uint32_t* block
) noexcept nogil:
    cdef uint64_t bytes
    cdef uint32_t found = 0
    if size > <uint64_t>1 << 63 or alignment > <uint64_t>1 << 62:
        return NO_FIT
    bytes = padded(m, size)
    if alignment < <uint64_t>1 << m.granule_shift:
        alignment = <uint64_t>1 << m.granule_shift
    if m.streams > 1:
        found = find_fit(m, m.shelves[tag], bytes, alignment)
    if found == 0:
        found = find_fit(m, m.shelves[SAFE], bytes, alignment)
    if found == 0:
        return NO_FIT
    # From here on nothing fails.
    if not reserve_blocks(m, 2) or (index and not reserve_index(m)):
        return NO_HOST_MEMORY
    found = carve(m, found, lead_of(m, found, alignment), bytes)
    occupy(m, found, size, tag, index)
    block[0] = found
    return DONE


cdef Status map_alloc_extent(
    Map* m, uint32_t extent, uint64_t size, uint32_t tag, bint index, uint32_t* block
) noexcept nogil:
    """Use a wholly free extent as one block, whatever its size."""
    cdef uint32_t first = m.extents[extent].first
    if index and not reserve_index(m):
        return NO_HOST_MEMORY
    map_settle(m)
    unshelve(m, first)
    unlist_free_extent(m, extent)
    occupy(m, first, size, tag, index)
    block[0] = first
    return DONE


cdef inline void occupy(
    Map* m, uint32_t block, uint64_t size, uint32_t tag, bint index
) noexcept nogil:
    """Turn a block that is in no bin into a used one."""
    cdef Block* entry = &m.blocks[block]
    cdef uint64_t span = span_of(m, block)
    entry.generation += 1
    entry.slack = <uint32_t>(span - size)
    set_tag(m, block, tag)
    entry.chain = <uint32_t>UNINDEXED
    if index:
        index_block(m, block)
    note_used(m, block)
    note_fresh(m, block, entry.start + span)
    count_used(&m.counters, size, span)


cdef inline void note_fresh(Map* m, uint32_t block, uint64_t end) noexcept nogil:
    """`block`, which ends here, became used: what lies beyond the frontier is so no more."""
    cdef Extent* extent = &m.extents[extent_of(m, block)]
    if end <= extent.fresh:
        return
    m.fresh_block = block
    m.fresh_generation = m.blocks[block].generation
    m.fresh_from = max(extent.fresh, m.blocks[block].start)
    extent.fresh = end


cdef uint64_t map_dirty(const Map* m, uint32_t block) noexcept nogil:
    if m.fresh_block != block or m.fresh_generation != m.blocks[block].generation:
        return span_of(m, block)
    return m.fresh_from - m.blocks[block].start


cdef void map_settle(Map* m) noexcept nogil:
    cdef uint32_t block = m.pending
    if block == 0:
        return
    m.pending = 0
    if m.blocks[block].chain != <uint32_t>UNINDEXED:
        unindex_block(m, block)
    note_free(m, block)
    settle(m, block)


cdef Status map_split(Map* m, uint32_t block, uint64_t first_size) noexcept nogil:
    cdef uint32_t upper
    cdef bint index = m.blocks[block].chain != <uint32_t>UNINDEXED
    if not reserve_blocks(m, 1) or (index and not reserve_index(m)):
        return NO_HOST_MEMORY
    upper = cut(m, block, first_size)
    m.blocks[upper].generation += 1
    m.blocks[upper].slack = m.blocks[block].slack
    m.blocks[block].slack = 0
    m.blocks[upper].chain = <uint32_t>UNINDEXED
    if index:
        index_block(m, upper)
    note_used(m, upper)
    m.counters.allocations += 1
    m.counters.splits += 1
    return DONE


cdef void map_merge(Map* m, uint32_t low) noexcept nogil:
    cdef uint32_t high = m.blocks[low].next
    if m.blocks[high].chain != <uint32_t>UNINDEXED:
        unindex_block(m, high)
    note_free(m, high)
    # The slack of the lower part becomes part of what the whole was asked for.
    m.counters.requested += m.blocks[low].slack
    m.blocks[low].slack = m.blocks[high].slack
    m.blocks[high].generation += 1
    absorb(m, low, high)
    m.counters.frees += 1
    m.counters.merges += 1


cdef Status map_resize(
    Map* m, uint32_t block, uint64_t size, bint elastic, Stretch* stretch
) noexcept nogil:
    cdef uint64_t span = span_of(m, block)
    cdef uint64_t before = requested_of(m, block)
    cdef Status status = DONE
    stretch.dirty_end = m.blocks[block].start + span
    stretch.reach = 0
    if size > <uint64_t>1 << 63:
        return NO_FIT
    if not elastic and (size > span or span - size > <uint64_t>MAX_SLACK):
        return NO_FIT
    if elastic and padded(m, size) > span:
        status = grow(m, block, padded(m, size), stretch)
    elif elastic and padded(m, size) < span:
        status = shrink(m, block, padded(m, size))
    if status != DONE:
        return status
    m.blocks[block].slack = (m.blocks[block].slack & <uint32_t>HOSTS) | <uint32_t>(
        span_of(m, block) - size
    )
    m.counters.used += span_of(m, block) - span
    m.counters.requested += size - before
    m.counters.peak_used = max(m.counters.peak_used, m.counters.used)
    m.counters.peak_requested = max(m.counters.peak_requested, m.counters.requested)
    return DONE


cdef Status shrink(Map* m, uint32_t block, uint64_t bytes) noexcept nogil:
    """Free what a used block has beyond `bytes`, on its stream."""
    cdef uint32_t upper
    if not reserve_blocks(m, 1):
        return NO_HOST_MEMORY
    map_settle(m)
    upper = cut(m, block, bytes)
    set_tag(m, upper, shelf_tag(m, tag_of(m, block)))
    settle(m, upper)
    return DONE


cdef Status grow(Map* m, uint32_t block, uint64_t bytes, Stretch* stretch) noexcept nogil:
    """Have a used block cover `bytes`, if what follows is free and everybody's or its stream's."""
    cdef uint32_t after
    cdef uint64_t end = m.blocks[block].start + bytes
    cdef Extent* extent = &m.extents[extent_of(m, block)]
    map_settle(m)
    after = end_of_run(m, block, end)
    if m.blocks[after].start < end:
        stretch.reach = 0 if is_used(m, after) else m.blocks[after].start
        return NO_FIT
    if not reserve_blocks(m, 1):
        return NO_HOST_MEMORY
    while span_of(m, block) < bytes:
        after = m.blocks[block].next
        unshelve(m, after)
        if m.blocks[m.blocks[after].next].start > end:
            shelve(m, cut(m, after, end - m.blocks[after].start))
        absorb(m, block, after)
    stretch.dirty_end = min(extent.fresh, end)
    extent.fresh = max(extent.fresh, end)
    return DONE


cdef uint32_t end_of_run(const Map* m, uint32_t block, uint64_t end) noexcept nogil:
    """The first block above, or from `end` on, that `block` cannot have for its stream."""
    cdef uint32_t own = shelf_tag(m, tag_of(m, block))
    cdef uint32_t after = m.blocks[block].next
    while m.blocks[after].start < end and not is_used(m, after) and (
        tag_of(m, after) == SAFE or tag_of(m, after) == own
    ):
        after = m.blocks[after].next
    return after


cdef uint64_t map_largest_free(const Map* m) noexcept nogil:
    cdef uint64_t largest = 0
    cdef uint32_t tag
    cdef uint32_t bin
    cdef uint32_t top
    cdef uint32_t block
    for tag in range(FIRST_STREAM + m.streams):
        if m.shelves[tag] == NULL or is_apart(tag):
            continue
        top = NO_BIN
        bin = bins_find(&m.shelves[tag].bins, 0)
        while bin != <uint32_t>NO_BIN:
            top = bin
            bin = bins_find(&m.shelves[tag].bins, bin + 1)
        if top == <uint32_t>NO_BIN:
            continue
        block = bins_head(&m.shelves[tag].bins, top)[0]
        while block:
            largest = max(largest, span_of(m, block))
            block = m.blocks[block].chain
    return largest
