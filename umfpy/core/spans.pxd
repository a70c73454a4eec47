"""Lists of a map's blocks, copied under its lock for Python to read without it."""

from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.structs cimport Map

cdef struct Span:
    uint64_t start
    uint64_t size
    bint used
    uint32_t tag

# All blocks of all extents; to be freed by the caller, NULL without host memory for them.
cdef Span* copy_spans(const Map* m, size_t* count) noexcept nogil

# The free blocks of a tag from `least` bytes on, in the same way.
cdef Span* copy_free(Map* m, uint32_t tag, uint64_t least, size_t* count) noexcept nogil
