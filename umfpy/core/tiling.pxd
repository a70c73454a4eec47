"""How blocks tile an extent: cut, joined, and carved out of what is free.

Each step keeps the neighbours, the bins and the list of wholly free extents together.
"""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.entries cimport give_block, reserve_blocks, take_block
from umfpy.core.shelves cimport shelve, unshelve
from umfpy.core.structs cimport (
    HIDDEN,
    TAG_MASK,
    Counters,
    Extent,
    Map,
    extent_of,
    is_backed,
    is_busy,
    is_used,
    span_of,
    tag_of,
)


cdef inline void set_tag(Map* m, uint32_t block, uint32_t tag) noexcept nogil:
    m.blocks[block].home = (m.blocks[block].home & ~<uint32_t>TAG_MASK) | tag


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


cdef inline void list_free_extent(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    entry.wholly_free = True
    entry.prev_free = 0
    entry.next_free = m.extents_free
    if m.extents_free:
        m.extents[m.extents_free].prev_free = extent
    m.extents_free = extent


cdef inline void unlist_free_extent(Map* m, uint32_t extent) noexcept nogil:
    cdef Extent* entry = &m.extents[extent]
    entry.wholly_free = False
    if entry.next_free:
        m.extents[entry.next_free].prev_free = entry.prev_free
    if entry.prev_free:
        m.extents[entry.prev_free].next_free = entry.next_free
    else:
        m.extents_free = entry.next_free


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


cdef inline void absorb(Map* m, uint32_t low, uint32_t high) noexcept nogil:
    """Make `low` cover `high` too, and give the entry of `high` back."""
    cdef uint32_t after = m.blocks[high].next
    m.blocks[low].next = after
    m.blocks[after].prev = low
    give_block(m, high)


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
