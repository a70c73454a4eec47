"""The extent map: sub-allocator, tracker and IPC look-up in one structure.  See DESIGN.md.

The functions here neither lock, raise nor call Python; `Map.lock` is the caller's to take.
Sizes are bytes unless they say granules, addresses are integers, blocks and extents are indices
into arrays, and 0 is the index of none.
"""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.starts cimport GOLDEN
from umfpy.core.structs cimport (
    DONE,
    NO_FIT,
    SAFE,
    TAG_MASK,
    UNINDEXED,
    Block,
    Counters,
    Map,
    Status,
    Stretch,
    lead_of,
    padded,
    requested_of,
    shelf_tag,
    span_of,
    tag_of,
)

# Life.
cdef Status map_init(
    Map* m, int granule_shift, bint ordered, uint32_t scan, uint64_t low_from
) noexcept nogil
cdef void map_clear(Map* m) noexcept nogil
cdef uint64_t map_metadata_bytes(const Map* m) noexcept nogil

# Extents.  `map_add_extent` leaves one free block of a tag, which reads as zero if it is `fresh`;
# `map_remove_extent` wants one.
cdef Status map_add_extent(Map* m, uint64_t base, uint64_t size, uint32_t tag, bint fresh,
                           uint32_t* extent) noexcept nogil
cdef void map_remove_extent(Map* m, uint32_t extent) noexcept nogil

# One free block of an extent whose blocks are all free, of whatever tags but those set apart by a
# thread; False, with nothing changed, for another or without host memory.  Its memory does not
# count any more.
cdef bint map_unite(Map* m, uint32_t extent) noexcept nogil

# Streams.  A tag lives until the map goes, or a full table is swept of idle ones.
cdef Status map_find_tag(Map* m, uint64_t stream, uint32_t* tag) noexcept nogil
cdef void map_restamp(Map* m, uint32_t from_tag, uint32_t to_tag) noexcept nogil

# States.  A range of whole granules gets another tag, neither of them a stream's nor RETIRING;
# NO_FIT where the range does not lie in one free block of `from_tag`.
cdef Status map_retag(Map* m, uint32_t extent, uint64_t start, uint64_t size, uint32_t from_tag,
                      uint32_t to_tag) noexcept nogil

# Blocks.  `size` may be 0, which takes one granule; `alignment` is a power of two.  `map_search`
# is what `map_alloc` below does when the pending block is of no use.
#
# The block freed last waits for the next call: a request of its very size takes it as it is,
# anything else merges and shelves it first (`map_settle`), so that no search ever misses it.
# Whoever reads the structure (bins, free extents, invariants) settles it before.
#
# `map_dirty` says how many bytes of a block that was just taken, from its start, somebody may have
# used: all of them, unless no other block moved a frontier since.
cdef Status map_search(
    Map* m, uint64_t size, uint64_t alignment, uint32_t tag, bint index, uint32_t* block
) noexcept nogil
cdef Status map_alloc_extent(Map* m, uint32_t extent, uint64_t size, uint32_t tag, bint index,
                             uint32_t* block) noexcept nogil
cdef void map_settle(Map* m) noexcept nogil
cdef uint64_t map_dirty(const Map* m, uint32_t block) noexcept nogil
cdef Status map_split(Map* m, uint32_t block, uint64_t first_size) noexcept nogil
cdef void map_merge(Map* m, uint32_t low) noexcept nogil

# In place.  The block's span follows where it is `elastic`, else it stays and the size lies in it.
cdef Status map_resize(Map* m, uint32_t block, uint64_t size, bint elastic,
                       Stretch* stretch) noexcept nogil

# Look-up.  `map_exact` finds an indexed block by its start; `map_locate` any used one by any of
# its addresses.  Both answer 0 for what is not theirs.
cdef uint32_t map_exact(const Map* m, uint64_t start) noexcept nogil
cdef uint32_t map_locate(Map* m, uint32_t extent, uint64_t address) noexcept nogil
cdef uint64_t map_largest_free(const Map* m) noexcept nogil


# The hot paths: a tag known from the last calls, the pending block used again, and a free.


cdef inline uint32_t tag_slot(uint64_t stream) noexcept nogil:
    """Where `Map.tag_cache` keeps a stream: the top six bits of a multiplicative hash."""
    return <uint32_t>((stream * <uint64_t>GOLDEN) >> 58)


cdef inline Status map_tag(Map* m, uint64_t stream, uint32_t* tag) noexcept nogil:
    """The tag that stands for a stream; SAFE where the order of streams does not matter."""
    cdef uint32_t cached
    tag[0] = SAFE
    if not m.ordered:
        return DONE
    cached = m.tag_cache[tag_slot(stream)]
    if cached == 0 or m.shelves[cached].stream != stream:
        return map_find_tag(m, stream, tag)
    tag[0] = cached
    return DONE


cdef inline void count_used(Counters* counters, uint64_t size, uint64_t span) noexcept nogil:
    counters.allocations += 1
    counters.requested += size
    counters.used += span
    if counters.requested > counters.peak_requested:
        counters.peak_requested = counters.requested
    if counters.used > counters.peak_used:
        counters.peak_used = counters.used


cdef inline bint take_pending(
    Map* m, uint64_t size, uint64_t alignment, uint32_t tag, bint index, uint32_t* block
) noexcept nogil:
    """Use the pending block again if it is what the request would be cut to; settle it if not."""
    cdef uint32_t pending = m.pending
    cdef Block* entry = &m.blocks[pending]
    cdef uint64_t span = span_of(m, pending)
    cdef bint indexed = entry.chain != <uint32_t>UNINDEXED
    if (
        size > span
        or padded(m, size) != span
        or indexed != index
        or lead_of(m, pending, alignment if alignment else 1)
        or (tag_of(m, pending) != SAFE and tag_of(m, pending) != tag)
    ):
        map_settle(m)
        return False
    m.pending = 0
    entry.generation += 1
    entry.slack = <uint32_t>(span - size)
    entry.home = (entry.home & ~<uint32_t>TAG_MASK) | tag
    count_used(&m.counters, size, span)
    block[0] = pending
    return True


cdef inline Status map_alloc(
    Map* m, uint64_t size, uint64_t alignment, uint32_t tag, bint index, uint32_t* block
) noexcept nogil:
    """A used block of `size` bytes for work on the tag's stream."""
    if m.pending and take_pending(m, size, alignment, tag, index, block):
        return DONE
    return map_search(m, size, alignment, tag, index, block)


cdef inline void map_free(Map* m, uint32_t block, uint32_t tag) noexcept nogil:
    cdef Block* entry = &m.blocks[block]
    if m.pending:
        map_settle(m)  # while this block is still used: nothing may merge with it yet
    m.counters.frees += 1
    m.counters.requested -= requested_of(m, block)
    m.counters.used -= span_of(m, block)
    entry.generation += 1
    entry.home = (entry.home & ~<uint32_t>TAG_MASK) | shelf_tag(m, tag)
    m.pending = block
