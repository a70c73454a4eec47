"""Two-level segregated bins: free blocks by size, found in constant time.

Sizes are counted in granules.  The first level is the power of two, the second cuts it into
`SECOND` equal steps, so that the sizes in one bin differ by less than 1/32; below `SECOND`
granules each size has a bin of its own.  Two bitmaps say which bins hold anything.

Source: M. Masmano et al., "TLSF: a new dynamic memory allocator for real-time systems", 2004.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memset

cdef extern from * nogil:
    int _clz64 "__builtin_clzll"(uint64_t value) noexcept
    int _ctz64 "__builtin_ctzll"(uint64_t value) noexcept
    int _ctz32 "__builtin_ctz"(uint32_t value) noexcept

cdef enum:
    SECOND_SHIFT = 5
    SECOND = 32
    FIRST = 60  # 64 - SECOND_SHIFT + 1: sizes up to 2^64 granules
    NO_BIN = 0xFFFFFFFF

cdef struct Bins:
    uint64_t first_map  # bit f: some bin of row f holds a block
    uint32_t[60] second_map  # [f] bit s: bin (f, s) holds a block
    uint32_t[60][32] heads  # [f][s]: index of the newest block, 0 for none


cdef inline void bins_init(Bins* bins) noexcept nogil:
    memset(bins, 0, sizeof(Bins))


cdef inline uint32_t bin_of(uint64_t granules) noexcept nogil:
    """The bin that a block of this size lies in, as ``first * SECOND + second``."""
    cdef int top
    if granules < SECOND:
        return <uint32_t>granules
    top = 63 - _clz64(granules)
    # The bits below the highest one select the step; the highest one itself becomes a row.
    return (<uint32_t>(top - SECOND_SHIFT) << SECOND_SHIFT) + <uint32_t>(
        granules >> (top - SECOND_SHIFT)
    )


cdef inline uint32_t bin_above(uint64_t granules) noexcept nogil:
    """The lowest bin whose every block has at least this size."""
    cdef int top
    if granules < SECOND:
        return <uint32_t>granules
    top = 63 - _clz64(granules)
    return bin_of(granules + ((<uint64_t>1 << (top - SECOND_SHIFT)) - 1))


cdef inline uint32_t bins_find(const Bins* bins, uint32_t bin) noexcept nogil:
    """The first bin at or above `bin` that holds a block, or NO_BIN."""
    cdef uint32_t first = bin >> SECOND_SHIFT
    cdef uint32_t row
    cdef uint64_t rows
    if first >= FIRST:
        return NO_BIN
    row = bins.second_map[first] & (<uint32_t>0xFFFFFFFF << (bin & (SECOND - 1)))
    if row == 0:
        # `first` is at most 59, so that the shift is defined.
        rows = bins.first_map & (~<uint64_t>0 << (first + 1))
        if rows == 0:
            return NO_BIN
        first = _ctz64(rows)
        row = bins.second_map[first]
    return (first << SECOND_SHIFT) + <uint32_t>_ctz32(row)


cdef inline uint32_t* bins_head(Bins* bins, uint32_t bin) noexcept nogil:
    return &bins.heads[bin >> SECOND_SHIFT][bin & (SECOND - 1)]


cdef inline void bins_mark(Bins* bins, uint32_t bin) noexcept nogil:
    """The bin now holds a block."""
    bins.first_map |= <uint64_t>1 << (bin >> SECOND_SHIFT)
    bins.second_map[bin >> SECOND_SHIFT] |= <uint32_t>1 << (bin & (SECOND - 1))


cdef inline void bins_unmark(Bins* bins, uint32_t bin) noexcept nogil:
    """The bin no longer holds a block."""
    cdef uint32_t first = bin >> SECOND_SHIFT
    bins.second_map[first] &= ~(<uint32_t>1 << (bin & (SECOND - 1)))
    if bins.second_map[first] == 0:
        bins.first_map &= ~(<uint64_t>1 << first)
