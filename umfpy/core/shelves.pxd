"""Free blocks by size: the bins of each tag, and which block of them serves a request."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport malloc

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
from umfpy.core.structs cimport (
    DONE,
    NO_HOST_MEMORY,
    Block,
    Map,
    Shelf,
    Status,
    lead_of,
    span_of,
    tag_of,
)

cdef enum:
    LOWEST_SCAN = 512  # how many blocks are compared for the lowest address


cdef inline Status make_shelf(Map* m, uint32_t tag) noexcept nogil:
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


cdef inline uint32_t closest(
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


cdef inline uint32_t lowest(
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


cdef inline uint32_t find_fit(
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
