"""Extents as Python sees them, the registry that finds them, and the map that cuts them up."""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.extent_map cimport Map, Status


# One contiguous range from a provider.  Owned by its map; the registry only borrows it.
cdef class Extent:
    cdef readonly object base  # address
    cdef readonly object size  # bytes, as the provider gave them
    cdef readonly object provider  # who they go back to
    cdef readonly ExtentMap map
    cdef readonly uint32_t index  # in the map
    cdef readonly Extent parent  # the extent that this one lies in, None for a physical root
    cdef uint32_t parent_block  # and the block of it
    cdef bint registered  # the registry borrows this object
    cdef uint32_t left_as  # the tag for `ExtentMap.restore`, once it was removed
    cdef public object export  # what `umfpy.ipc` keeps of a root: its export, made once
    cdef object __weakref__


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


cpdef Extent innermost(object address)

# The indexed block that starts here, has this size (or ANY_SIZE) and hosts nothing, or 0.
cdef uint32_t find_freeable(const Map* m, uint64_t start, uint64_t size) noexcept nogil

# 0 or a power of two; AlignmentError otherwise.
cdef uint64_t as_alignment(object alignment) except? 0xFFFFFFFFFFFFFFFF
