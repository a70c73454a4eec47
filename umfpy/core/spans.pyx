# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Lists of a map's blocks, copied under its lock for Python to read without it.

No Python object may be made under the lock: that can run a destructor, which frees a block.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport malloc

from umfpy.core.bins cimport NO_BIN, bin_of, bins_find, bins_head
from umfpy.core.structs cimport Map, is_used, span_of, tag_of


cdef Span* copy_spans(const Map* m, size_t* count) noexcept nogil:
    cdef Span* spans = <Span*>malloc((<size_t>m.blocks_used + 1) * sizeof(Span))
    cdef uint32_t i
    cdef uint32_t block
    if spans == NULL:
        return NULL
    for i in range(1, m.extents_used):
        if m.extents[i].size == 0:
            continue
        block = m.extents[i].first
        while m.blocks[block].next:
            spans[count[0]] = Span(
                m.blocks[block].start, span_of(m, block), is_used(m, block), tag_of(m, block)
            )
            count[0] += 1
            block = m.blocks[block].next
    return spans


cdef Span* copy_free(Map* m, uint32_t tag, uint64_t least, size_t* count) noexcept nogil:
    cdef uint64_t mask = (<uint64_t>1 << m.granule_shift) - 1
    cdef uint32_t lowest = bin_of((least >> m.granule_shift) + ((least & mask) != 0))
    cdef Span* spans = <Span*>malloc((count_binned(m, tag, lowest) + 1) * sizeof(Span))
    cdef uint32_t bin = NO_BIN if m.shelves[tag] == NULL else bins_find(
        &m.shelves[tag].bins, lowest
    )
    cdef uint32_t block
    while spans != NULL and bin != <uint32_t>NO_BIN:
        block = bins_head(&m.shelves[tag].bins, bin)[0]
        while block:
            if span_of(m, block) >= least:
                spans[count[0]] = Span(m.blocks[block].start, span_of(m, block), False, tag)
                count[0] += 1
            block = m.blocks[block].chain
        bin = bins_find(&m.shelves[tag].bins, bin + 1)
    return spans


cdef size_t count_binned(Map* m, uint32_t tag, uint32_t lowest) noexcept nogil:
    """How many free blocks of a tag stand in this bin and those above."""
    cdef size_t count = 0
    cdef uint32_t bin = NO_BIN if m.shelves[tag] == NULL else bins_find(
        &m.shelves[tag].bins, lowest
    )
    cdef uint32_t block
    while bin != <uint32_t>NO_BIN:
        block = bins_head(&m.shelves[tag].bins, bin)[0]
        while block:
            count += 1
            block = m.blocks[block].chain
        bin = bins_find(&m.shelves[tag].bins, bin + 1)
    return count
