"""The arrays of blocks and extents: unused entries, taken and given back.

Whatever may fail for want of host memory is reserved before the first change.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport realloc

from umfpy.core.structs cimport Block, Extent, Map

cdef enum:
    MAX_BLOCKS = 0xFFFFFFF0


cdef inline bint reserve_blocks(Map* m, uint32_t count) noexcept nogil:
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


cdef inline uint32_t take_extent(Map* m) noexcept nogil:
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
