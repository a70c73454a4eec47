"""From any address inside an extent to the last used block that starts at or before it.

The extent is cut into regions of `2 ** shift` bytes.  For each the table keeps the last used
block that starts in it, and a bitset with summary levels says which regions have one, so that
the nearest such region below an address is found in at most `LEVELS` steps up and down.
"""

from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport calloc, free

cdef extern from * nogil:
    int _clz64 "__builtin_clzll"(uint64_t value) noexcept

cdef enum:
    LEVELS = 6  # 64 ** 6 regions of 64 KiB cover more than 2^52 bytes
    NO_REGION = 0xFFFFFFFFFFFFFFFF

cdef struct Regions:
    uint64_t base  # address of the extent
    uint64_t count  # number of regions
    uint32_t* last  # [region] the last used block that starts in it, 0 for none
    uint64_t* bits[6]  # [0] one bit a region; [n + 1] one bit a word of [n]
    uint64_t bytes  # of the whole table
    int shift  # log2 of the bytes in a region
    int levels  # of `bits` in use


cdef inline Regions* regions_new(uint64_t base, uint64_t size, int shift) noexcept nogil:
    """An empty table, NULL without memory."""
    cdef uint64_t words[LEVELS]
    cdef uint64_t count = ((size - 1) >> shift) + 1
    cdef uint64_t total
    cdef uint64_t* memory
    cdef Regions* regions
    cdef int level = 0
    words[0] = ((count - 1) >> 6) + 1
    total = words[0]
    while words[level] > 1:
        words[level + 1] = ((words[level] - 1) >> 6) + 1
        level += 1
        total += words[level]
    # One zeroed piece for all: the system backs only what is touched.
    regions = <Regions*>calloc(1, sizeof(Regions) + (total + ((count + 1) >> 1)) * 8)
    if regions == NULL:
        return NULL
    regions.base = base
    regions.count = count
    regions.shift = shift
    regions.levels = level + 1
    regions.bytes = sizeof(Regions) + (total + ((count + 1) >> 1)) * 8
    memory = <uint64_t*>&regions[1]
    for level in range(regions.levels):
        regions.bits[level] = memory
        memory += words[level]
    regions.last = <uint32_t*>memory
    return regions


cdef inline void regions_delete(Regions* regions) noexcept nogil:
    free(regions)


cdef inline uint64_t regions_bytes(const Regions* regions) noexcept nogil:
    """The size of the table in bytes."""
    return regions.bytes


cdef inline uint64_t region_of(const Regions* regions, uint64_t address) noexcept nogil:
    return (address - regions.base) >> regions.shift


cdef inline void regions_set(Regions* regions, uint64_t region, uint32_t block) noexcept nogil:
    """`block` is now the last one of the region."""
    cdef int level
    cdef uint64_t index = region
    cdef uint64_t before
    cdef bint was_empty = regions.last[region] == 0
    regions.last[region] = block
    if not was_empty:
        return
    for level in range(regions.levels):
        before = regions.bits[level][index >> 6]
        regions.bits[level][index >> 6] = before | (<uint64_t>1 << (index & 63))
        if before:
            return
        index >>= 6


cdef inline void regions_unset(Regions* regions, uint64_t region) noexcept nogil:
    """No used block starts in the region any more."""
    cdef int level
    cdef uint64_t index = region
    cdef uint64_t* word
    regions.last[region] = 0
    for level in range(regions.levels):
        word = &regions.bits[level][index >> 6]
        word[0] &= ~(<uint64_t>1 << (index & 63))
        if word[0]:
            return
        index >>= 6


cdef inline uint64_t regions_before(const Regions* regions, uint64_t region) noexcept nogil:
    """The nearest region below this one with a block, or NO_REGION."""
    cdef int level = 0
    cdef uint64_t index = region
    cdef uint64_t word
    while True:
        # Bits strictly below `index` in its word; none when it is the word's first.
        word = regions.bits[level][index >> 6] & ((<uint64_t>1 << (index & 63)) - 1)
        if word:
            index = (index & ~<uint64_t>63) | <uint64_t>(63 - _clz64(word))
            break
        index >>= 6
        level += 1
        if level == regions.levels:
            return NO_REGION
    while level:
        level -= 1
        index = (index << 6) | <uint64_t>(63 - _clz64(regions.bits[level][index]))
    return index
