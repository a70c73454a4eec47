# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The extent map's bodies; `extent_map.pxd` says what each does, DESIGN.md why."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memset

from umfpy.core.bins cimport (
    NO_BIN,
    Bins,
    bin_above,
    bin_of,
    bins_find,
    bins_head,
    bins_init,
    bins_mark,
    bins_unmark,
)
from umfpy.core.regions cimport (
    NO_REGION,
    Regions,
    region_of,
    regions_before,
    regions_bytes,
    regions_delete,
    regions_new,
    regions_set,
    regions_unset,
)

cdef enum:
    FIRST_BLOCKS = 64  # capacities to start with; each doubles when full
    FIRST_EXTENTS = 8
    FIRST_HASH_SHIFT = 58
    REGION_GRANULES_SHIFT = 7  # a region holds at most 128 blocks: the longest walk of a look-up
    MAX_BLOCKS = 0xFFFFFFF0
    LOWEST_SCAN = 512  # how many blocks are compared for the lowest address

cdef uint64_t GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: Knuth's multiplicative hash


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


cdef bint reserve_blocks(Map* m, uint32_t count) noexcept nogil:
    """See to it that the next `count` calls of `take_block` succeed."""
    cdef uint32_t capacity = m.blocks_capacity
    cdef Block* blocks
    # The list of unused entries is not counted: room for all of them is kept at the end.
    if m.blocks_used + count <= capacity:
        return True
    if capacity > MAX_BLOCKS // 2:
        return False
    blocks = <Block*>realloc(m.blocks, <size_t>capacity * 2 * sizeof(Block))
    if blocks == NULL:
        return False
    m.blocks = blocks
    m.blocks_capacity = capacity * 2
    return True


cdef inline uint32_t take_block(Map* m) noexcept nogil:
    """An unused entry, after `reserve_blocks`.  Its generation is even and stays."""
    cdef uint32_t block = m.blocks_unused
    if block:
        m.blocks_unused = m.blocks[block].next
        return block
    block = m.blocks_used
    m.blocks_used += 1
    m.blocks[block].generation = 0
    return block


cdef inline void give_block(Map* m, uint32_t block) noexcept nogil:
    m.blocks[block].next = m.blocks_unused
    m.blocks_unused = block


cdef uint32_t take_extent(Map* m) noexcept nogil:
    """An unused entry, 0 without memory for one."""
    cdef uint32_t extent = m.extents_unused
    cdef Extent* extents
    if extent:
        m.extents_unused = m.extents[extent].next_free
        return extent
    if m.extents_used == m.extents_capacity:
        extents = <Extent*>realloc(m.extents, m.extents_capacity * 2 * sizeof(Extent))
        if extents == NULL:
            return 0
        m.extents = extents
        m.extents_capacity *= 2
    extent = m.extents_used
    m.extents_used += 1
    return extent


# --- Free blocks by size: shelves and bins ---------------------------------------------------


cdef Status make_shelf(Map* m, uint32_t tag) noexcept nogil:
    if m.shelves[tag] == NULL:
        m.shelves[tag] = <Shelf*>malloc(sizeof(Shelf))
        if m.shelves[tag] == NULL:
            return NO_HOST_MEMORY
        m.shelves[tag].stream = 0
        bins_init(&m.shelves[tag].bins)
    return DONE


cdef inline void shelve(Map* m, uint32_t block) noexcept nogil:
    """Put a free block into the bin of its tag and size, in front."""
    cdef Bins* bins = &m.shelves[tag_of(m, block)].bins
    cdef uint32_t bin = bin_of(span_of(m, block) >> m.granule_shift)
    cdef uint32_t* head = bins_head(bins, bin)
    m.blocks[block].slack = 0
    m.blocks[block].chain = head[0]
    if head[0]:
        m.blocks[head[0]].slack = block
    else:
        bins_mark(bins, bin)
    head[0] = block


cdef inline void unshelve(Map* m, uint32_t block) noexcept nogil:
    """Take a free block out of its bin."""
    cdef Block* entry = &m.blocks[block]
    cdef Bins* bins
    cdef uint32_t bin
    if entry.chain:
        m.blocks[entry.chain].slack = entry.slack
    if entry.slack:
        m.blocks[entry.slack].chain = entry.chain
        return
    bins = &m.shelves[tag_of(m, block)].bins
    bin = bin_of(span_of(m, block) >> m.granule_shift)
    bins_head(bins, bin)[0] = entry.chain
    if entry.chain == 0:
        bins_unmark(bins, bin)


cdef uint32_t closest(
    const Map* m, uint32_t block, uint64_t bytes, uint64_t alignment, uint32_t scan
) noexcept nogil:
    """The smallest block that fits among the first `scan` of the list that `block` heads."""
    cdef uint32_t best = 0
    cdef uint64_t best_span = ~<uint64_t>0
    cdef uint64_t span
    while block and scan:
        span = span_of(m, block)
        if span < best_span and span >= bytes and (
            span - bytes >= lead_of(m, block, alignment)
        ):
            best = block
            if span == bytes:
                break
            best_span = span
        block = m.blocks[block].chain
        scan -= 1
    return best


cdef uint32_t lowest(
    const Map* m, const Bins* bins, uint32_t own, uint64_t bytes, uint64_t alignment
) noexcept nogil:
    """The block of the lowest address that fits, among the first some hundred of its size and up.

    What lies low stays full, and what lies high comes free in large pieces.
    """
    cdef uint32_t best = 0
    cdef uint32_t left = LOWEST_SCAN
    cdef uint32_t bin = bins_find(bins, own)
    cdef uint32_t block
    cdef uint64_t span
    while bin != <uint32_t>NO_BIN and left:
        block = bins_head(<Bins*>bins, bin)[0]
        while block and left:
            span = span_of(m, block)
            if span >= bytes and span - bytes >= lead_of(m, block, alignment) and (
                best == 0 or m.blocks[block].start < m.blocks[best].start
            ):
                best = block
            block = m.blocks[block].chain
            left -= 1
        bin = bins_find(bins, bin + 1)
    return best


cdef uint32_t find_fit(
    const Map* m, const Shelf* shelf, uint64_t bytes, uint64_t alignment
) noexcept nogil:
    """A free block of the shelf that holds `bytes` at this alignment, 0 for none.

    The bin of that size comes first, where `Map.scan` blocks are looked at; then the lowest bin
    in which every block fits.  What is left of the bins between is searched only when all else
    failed: growing costs a driver call, which is more than a list.
    """
    cdef Bins* bins = <Bins*>&shelf.bins
    cdef uint64_t granules = bytes >> m.granule_shift
    cdef uint64_t lead = (alignment - 1) >> m.granule_shift
    cdef uint32_t own = bin_of(granules)
    cdef uint32_t bin
    cdef uint32_t block
    if m.low_from and bytes >= m.low_from:
        block = lowest(m, bins, own, bytes, alignment)
        if block:
            return block
    if m.scan:
        block = closest(m, bins_head(bins, own)[0], bytes, alignment, m.scan)
        if block:
            return block
    bin = bins_find(bins, bin_above(granules + lead))
    if bin != <uint32_t>NO_BIN:
        # Cannot fail: every block here has room for the bytes and the worst lead.
        return closest(m, bins_head(bins, bin)[0], bytes, alignment, max(m.scan, 1))
    bin = bins_find(bins, own)
    while bin != <uint32_t>NO_BIN:
        block = closest(m, bins_head(bins, bin)[0], bytes, alignment, ~<uint32_t>0)
        if block:
            return block
        bin = bins_find(bins, bin + 1)
    return 0


# --- Used blocks by address: the hash of starts ----------------------------------------------


cdef inline uint32_t slot_of(const Map* m, uint64_t start) noexcept nogil:
    return <uint32_t>(((start >> m.granule_shift) * GOLDEN) >> m.hash_shift)


cdef bint reserve_index(Map* m) noexcept nogil:
    """See to it that one more block can be indexed without long chains."""
    cdef uint32_t* old = m.hash
    cdef uint64_t size = <uint64_t>1 << (64 - m.hash_shift)
    cdef uint64_t i
    cdef uint32_t block
    cdef uint32_t chain
    if m.indexed < size:
        return True
    m.hash = <uint32_t*>calloc(size * 2, sizeof(uint32_t))
    if m.hash == NULL:
        m.hash = old
        return False
    m.hash_shift -= 1
    for i in range(size):
        block = old[i]
        while block:
            chain = m.blocks[block].chain
            link(m, block)
            block = chain
    free(old)
    return True


cdef inline void link(Map* m, uint32_t block) noexcept nogil:
    cdef uint32_t* slot = &m.hash[slot_of(m, m.blocks[block].start)]
    m.blocks[block].chain = slot[0]
    slot[0] = block


cdef inline void index_block(Map* m, uint32_t block) noexcept nogil:
    link(m, block)
    m.indexed += 1


cdef inline void unindex_block(Map* m, uint32_t block) noexcept nogil:
    cdef uint32_t* slot = &m.hash[slot_of(m, m.blocks[block].start)]
    while slot[0] != block:
        slot = &m.blocks[slot[0]].chain
    slot[0] = m.blocks[block].chain
    m.indexed -= 1


cdef uint32_t map_exact(const Map* m, uint64_t start) noexcept nogil:
    cdef uint32_t block = m.hash[slot_of(m, start)]
    while block and m.blocks[block].start != start:
        block = m.blocks[block].chain
    # A block that is pending is free, and still in its chain.
    return block if is_used(m, block) else 0


# --- Used blocks by any address: the regions -------------------------------------------------


cdef inline void note_used(Map* m, uint32_t block) noexcept nogil:
    """`block` became used: it may be the last of its region."""
    cdef Regions* regions = m.extents[extent_of(m, block)].regions
    cdef uint64_t region
    cdef uint32_t after = m.blocks[block].next
    if regions == NULL:
        return
    region = region_of(regions, m.blocks[block].start)
    while not is_used(m, after) and region_of(regions, m.blocks[after].start) == region:
        after = m.blocks[after].next
    if region_of(regions, m.blocks[after].start) != region or m.blocks[after].next == 0:
        regions_set(regions, region, block)


cdef inline void note_free(Map* m, uint32_t block) noexcept nogil:
    """`block` is about to become free: the one before it may be the last of the region now."""
    cdef Regions* regions = m.extents[extent_of(m, block)].regions
    cdef uint64_t region
    cdef uint32_t before
    if regions == NULL:
        return
    region = region_of(regions, m.blocks[block].start)
    if regions.last[region] != block:
        return
    before = m.blocks[block].prev
    while not is_used(m, before) and region_of(regions, m.blocks[before].start) == region:
        before = m.blocks[before].prev
    # Entry 0, below the first block, is used and lies in no region.
    if is_used(m, before) and region_of(regions, m.blocks[before].start) == region:
        regions.last[region] = before
    else:
        regions_unset(regions, region)


cdef void build_regions(Map* m, uint32_t extent) noexcept nogil:
    """Make the extent's table, which is kept up from then on.  Without memory there is none."""
    cdef Extent* entry = &m.extents[extent]
    cdef uint32_t block = entry.first
    map_settle(m)
    entry.regions = regions_new(entry.base, entry.size, m.granule_shift + REGION_GRANULES_SHIFT)
    while entry.regions != NULL and block != entry.sentinel:
        if is_used(m, block):
            # Upwards, so that the last of a region stays.
            regions_set(entry.regions, region_of(entry.regions, m.blocks[block].start), block)
        block = m.blocks[block].next


cdef uint32_t map_locate(Map* m, uint32_t extent, uint64_t address) noexcept nogil:
    cdef uint32_t block
    if m.extents[extent].regions == NULL:
        build_regions(m, extent)
    block = nearest_below(m, extent, address)
    # Down to the block that covers the address: blocks tile, so the first to start at or below.
    while m.blocks[block].start > address:
        block = m.blocks[block].prev
    if block == 0 or not is_used(m, block) or m.blocks[m.blocks[block].next].start <= address:
        return 0
    return block


cdef uint32_t locate_any(Map* m, uint32_t extent, uint64_t address) noexcept nogil:
    """The block at an address of the extent, used or free.

    Between two used blocks are as many free ones as their tags change.
    """
    cdef uint32_t block
    if m.extents[extent].regions == NULL:
        build_regions(m, extent)
    block = nearest_below(m, extent, address)
    if block == 0:
        block = m.extents[extent].first
    while m.blocks[block].start > address:
        block = m.blocks[block].prev
    while m.blocks[m.blocks[block].next].start <= address:
        block = m.blocks[block].next
    return block


cdef uint32_t nearest_below(const Map* m, uint32_t extent, uint64_t address) noexcept nogil:
    """A block from which a few steps down lead to the one at the address; 0 if none is used."""
    cdef const Regions* regions = m.extents[extent].regions
    cdef uint64_t region
    if regions == NULL:
        return m.blocks[m.extents[extent].sentinel].prev  # no memory for a table: all the steps
    region = region_of(regions, address)
    if regions.last[region]:
        return regions.last[region]
    region = regions_before(regions, region)
    return 0 if region == <uint64_t>NO_REGION else regions.last[region]


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


cdef inline void count_in(Counters* counters, uint32_t tag, uint64_t size) noexcept nogil:
    """So much free memory of this tag is there now."""
    if not is_backed(tag):
        counters.unbacked += size
        return
    if tag == HIDDEN:
        counters.hidden += size
    counters.reserved += size
    if counters.reserved > counters.peak_reserved:
        counters.peak_reserved = counters.reserved


cdef inline void count_out(Counters* counters, uint32_t tag, uint64_t size) noexcept nogil:
    """So much free memory of this tag is there no more."""
    if not is_backed(tag):
        counters.unbacked -= size
        return
    if tag == HIDDEN:
        counters.hidden -= size
    counters.reserved -= size


cdef void list_free_extent(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    entry.wholly_free = True
    entry.prev_free = 0
    entry.next_free = m.extents_free
    if m.extents_free:
        m.extents[m.extents_free].prev_free = extent
    m.extents_free = extent


cdef void unlist_free_extent(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    entry.wholly_free = False
    if entry.next_free:
        m.extents[entry.next_free].prev_free = entry.prev_free
    if entry.prev_free:
        m.extents[entry.prev_free].next_free = entry.next_free
    else:
        m.extents_free = entry.next_free


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


cdef inline void settle(Map* m, uint32_t block) noexcept nogil:
    """Shelve a free block, joined with the free neighbours of its tag."""
    cdef uint32_t after = m.blocks[block].next
    cdef uint32_t before = m.blocks[block].prev
    cdef uint32_t home = m.blocks[block].home
    if not is_used(m, after) and m.blocks[after].home == home:
        unshelve(m, after)
        absorb(m, block, after)
    if not is_used(m, before) and m.blocks[before].home == home:
        unshelve(m, before)
        absorb(m, before, block)
        block = before
    shelve(m, block)
    if m.blocks[block].prev == 0 and m.blocks[m.blocks[block].next].next == 0 and (
        not is_busy(tag_of(m, block))
    ):
        list_free_extent(m, extent_of(m, block))


cdef inline void set_tag(Map* m, uint32_t block, uint32_t tag) noexcept nogil:
    m.blocks[block].home = (m.blocks[block].home & ~<uint32_t>TAG_MASK) | tag


cdef inline void absorb(Map* m, uint32_t low, uint32_t high) noexcept nogil:
    """Make `low` cover `high` too, and give the entry of `high` back."""
    cdef uint32_t after = m.blocks[high].next
    m.blocks[low].next = after
    m.blocks[after].prev = low
    give_block(m, high)


cdef inline uint32_t cut(Map* m, uint32_t block, uint64_t first_bytes) noexcept nogil:
    """Cut a block in two; the new upper one has no state yet but its place."""
    cdef uint32_t upper = take_block(m)
    cdef uint32_t after = m.blocks[block].next
    m.blocks[upper].start = m.blocks[block].start + first_bytes
    m.blocks[upper].prev = block
    m.blocks[upper].next = after
    m.blocks[upper].home = m.blocks[block].home
    m.blocks[block].next = upper
    m.blocks[after].prev = upper
    return upper


cdef inline uint32_t carve(Map* m, uint32_t block, uint64_t lead, uint64_t bytes) noexcept nogil:
    """Take `bytes` from `lead` on out of a free block; what is around them stays free.

    After `reserve_blocks`, of 2 at most.  What is returned stands in no bin.
    """
    cdef uint32_t lower
    unshelve(m, block)
    if m.extents[extent_of(m, block)].wholly_free:
        unlist_free_extent(m, extent_of(m, block))
    if lead:
        lower = block
        block = cut(m, lower, lead)
        shelve(m, lower)
    if span_of(m, block) > bytes:
        shelve(m, cut(m, block, bytes))
    return block


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
