"""A pool for callers without the GIL: C functions, and where to find them.

Two shapes, of the libraries that take such functions:

    malloc(param, size, device) -> ptr         free(param, ptr, device)            CuPy
    malloc(size, device, stream) -> ptr        free(ptr, size, device, stream)     PyTorch

The first is told its pool by `param`, the second by the device (`CInterface.serve`).  A failure
is NULL, as is a size of 0; a free of what is not live is ignored, and counted in `refused`.

The first knows no stream: its memory is that of the default stream, 0.  Whoever queues work on
others has to take the second.

What the pool has at hand is given and taken under its lock alone.  Everything else (growing, a
pool that keeps nothing, one that is closed) is Python, for which the GIL is taken; once the
interpreter ends there is none, so that such calls then fail.
"""

from libc.stdint cimport uint64_t

from umfpy.core.structs cimport Map

# What the capsule named `umfpy.port.1` holds.
cdef struct Functions:
    void* param
    void* (*malloc)(void* param, size_t size, int device) noexcept nogil
    void (*free)(void* param, void* ptr, int device) noexcept nogil
    void* (*device_malloc)(size_t size, int device, void* stream) noexcept nogil
    void (*device_free)(void* ptr, size_t size, int device, void* stream) noexcept nogil
    void (*device_record)(void* ptr, void* stream) noexcept nogil

# What `param` points at.  Never freed: whoever holds the functions may call them at any time.
cdef struct Port:
    Functions functions
    Map* m
    void* interface  # its CInterface, with a reference of the port's own
    bint direct  # the pool keeps nothing: every call needs Python
    bint zeroed  # the pool clears what it gives, which needs Python too
    uint64_t refused  # frees of what was not live; atomic

cdef void* port_malloc(void* param, size_t size, int device) noexcept nogil
cdef void port_free(void* param, void* ptr, int device) noexcept nogil
cdef void* device_malloc(size_t size, int device, void* stream) noexcept nogil
cdef void device_free(void* ptr, size_t size, int device, void* stream) noexcept nogil

# PyTorch's `record_stream`: work on this stream uses the memory as well.  It is freed as memory
# that no stream may use before the device has been waited for.
cdef void device_record(void* ptr, void* stream) noexcept nogil
