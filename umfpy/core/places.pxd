"""Used blocks by any of their addresses: the regions of an extent.

They are made at the first look-up, and kept up from then on.
"""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.regions cimport (
    NO_REGION,
    Regions,
    region_of,
    regions_before,
    regions_new,
    regions_set,
    regions_unset,
)
from umfpy.core.structs cimport Extent, Map, extent_of, is_used

cdef enum:
    REGION_GRANULES_SHIFT = 7  # a region holds at most 128 blocks: the longest walk of a look-up


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


cdef inline void build_regions(Map* m, uint32_t extent) noexcept nogil:
    """Make the extent's table, which is kept up from then on.  Without memory there is none."""
    cdef Extent* entry = &m.extents[extent]
    cdef uint32_t block = entry.first
    entry.regions = regions_new(entry.base, entry.size, m.granule_shift + REGION_GRANULES_SHIFT)
    while entry.regions != NULL and block != entry.sentinel:
        if is_used(m, block):
            # Upwards, so that the last of a region stays.
            regions_set(entry.regions, region_of(entry.regions, m.blocks[block].start), block)
        block = m.blocks[block].next


cdef inline uint32_t nearest_below(const Map* m, uint32_t extent, uint64_t address) noexcept nogil:
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


cdef inline uint32_t locate_any(Map* m, uint32_t extent, uint64_t address) noexcept nogil:
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
