"""A pool for callers without the GIL: C functions, and where to find them.

Two shapes, of the libraries that take such functions:

    malloc(param, size, device) -> ptr         free(param, ptr, device)            CuPy
    malloc(size, device, stream) -> ptr        free(ptr, size, device, stream)     PyTorch

The first is told its pool by `param`, the second by the device (`CInterface.serve`).  A failure
is NULL, as is a size of 0; a free of what is not live is ignored, and counted in `refused`.
"""

from libc.stdint cimport uint64_t

from umfpy.core.extent_map cimport Map

# What `param` points at.  Never freed: whoever holds the functions may call them at any time.
cdef struct Port:
    Map* m
    void* pool  # a BasePool, with a reference of the port's own
    bint direct  # the pool keeps nothing: every call needs Python
    uint64_t refused  # frees of what was not live

cdef void* port_malloc(void* param, size_t size, int device) noexcept nogil
cdef void port_free(void* param, void* ptr, int device) noexcept nogil
cdef void* port_malloc_on(Port* port, size_t size, uint64_t stream) noexcept nogil
cdef void port_free_on(Port* port, void* ptr, size_t size, uint64_t stream) noexcept nogil
cdef void* device_malloc(size_t size, int device, void* stream) noexcept nogil
cdef void device_free(void* ptr, size_t size, int device, void* stream) noexcept nogil
