"""Used blocks by their start address: a hash with chains through the blocks."""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from umfpy.core.structs cimport Map

cdef enum:
    GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: Knuth's multiplicative hash


cdef inline uint32_t slot_of(const Map* m, uint64_t start) noexcept nogil:
    return <uint32_t>(((start >> m.granule_shift) * <uint64_t>GOLDEN) >> m.hash_shift)


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


cdef inline bint reserve_index(Map* m) noexcept nogil:
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
