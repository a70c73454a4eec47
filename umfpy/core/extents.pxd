"""The extent map as Python sees it: with a lock, errors, and extents that know their providers."""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.extent_map cimport map_exact
from umfpy.core.numbers cimport ANY_SIZE
from umfpy.core.registry cimport Extent
from umfpy.core.structs cimport HOSTS, Map, Status, requested_of


cdef class ExtentMap:
    cdef Map m
    cdef readonly object granule
    cdef readonly object owner  # a weak reference to the pool or provider
    cdef readonly dict extents  # {index: Extent}
    cdef object __weakref__

    cdef raise_status(self, Status status)
    cdef Extent _new_extent(self, base, size, provider)
    cdef _enter(self, Extent extent, uint32_t state, bint fresh, uint32_t* block,
                uint64_t requested, uint64_t stream, bint index)
    cdef Extent _extent_at(self, address)
    # A used block for the request; 0 with no error set means that none fits.
    cdef uint32_t take(self, uint64_t size, uint64_t alignment, uint64_t stream,
                       bint index) except? 0


# 0 or a power of two; AlignmentError otherwise.
cdef uint64_t as_alignment(object alignment) except? 0xFFFFFFFFFFFFFFFF


cdef inline uint32_t find_freeable(const Map* m, uint64_t start, uint64_t size) noexcept nogil:
    """The indexed block that starts here, has this size (or ANY_SIZE) and hosts nothing, or 0."""
    cdef uint32_t block = map_exact(m, start)
    if block == 0 or m.blocks[block].slack & <uint32_t>HOSTS:
        return 0
    if size != <uint64_t>ANY_SIZE and size != requested_of(m, block):
        return 0
    return block
