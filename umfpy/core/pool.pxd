"""The base of every pool, and the allocations that pools hand out."""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.extents cimport ExtentMap
from umfpy.core.structs cimport Map, Stretch


# A used block, as it was when it was taken.
cdef struct Grant:
    uint64_t start  # address
    uint64_t size  # bytes, as requested
    uint32_t block
    uint32_t generation


# What became of an allocation that was resized.
cdef struct Resize:
    uint64_t before  # bytes
    Stretch stretch


cdef class BasePool:
    cdef readonly ExtentMap map
    cdef Map* m  # of `map`
    cdef readonly object provider
    cdef readonly object name
    cdef readonly object serial  # counts pools; makes the ids of allocations unique
    cdef bint direct  # every request goes to `_obtain`, every free to `_discard`
    cdef object _c_interface
    cdef bint zeroed  # every allocation reads as zero
    cdef object __weakref__

    cdef int take(self, object size, object alignment, uint64_t stream, bint index,
                  Grant* grant) except -1
    cdef void fill(self, Grant* grant) noexcept nogil
    cdef bint give_at_once(self, uint32_t block, uint32_t generation) noexcept
    cdef give(self, uint32_t block, uint32_t generation, object stream)
    cdef bint resize(self, Allocation allocation, uint64_t size, bint zero) except -1
    cdef bint stretch(self, Allocation allocation, uint64_t size, Resize* resize) except -1
    cdef clear_or_undo(self, Allocation allocation, uint64_t size, Resize* resize)
    cdef undo(self, Grant* grant, Resize* resize)


cdef class Allocation:
    cdef BasePool home
    cdef Grant grant
    cdef uint64_t stream_handle
    cdef bint live  # not freed
    cdef object __weakref__


# The native handle of a stream: None is the default stream, 0.
cdef uint64_t as_stream(object stream) except? 0xFFFFFFFFFFFFFFFF
