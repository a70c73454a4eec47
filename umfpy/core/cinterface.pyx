# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""A pool for callers without the GIL; `cinterface.pxd` says what the functions promise."""

from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc

from umfpy.core.extent_map cimport (
    DONE,
    NO_FIT,
    Map,
    Status,
    map_alloc,
    map_free,
    map_tag,
    tag_of,
)
from umfpy.core.extents cimport find_freeable
from umfpy.core.lock cimport lock_acquire, lock_release, lock_share
from umfpy.core.numbers cimport ANY_SIZE
from umfpy.core.pool cimport BasePool

from umfpy.errors import InvalidArgument, UmfpyError

cdef enum:
    MAX_DEVICES = 256

cdef Port* serving[256]  # [device] whose pool answers calls in PyTorch's shape


cdef void* port_malloc(void* param, size_t size, int device) noexcept nogil:
    return port_malloc_on(<Port*>param, size, 0)


cdef void port_free(void* param, void* ptr, int device) noexcept nogil:
    cdef Port* port = <Port*>param
    cdef Map* m = port.m
    cdef uint32_t block
    if ptr == NULL:
        return
    if port.direct or m.closed:
        slow_free(port, <uint64_t>ptr)
        return
    lock_acquire(&m.lock)
    block = find_freeable(m, <uint64_t>ptr, ANY_SIZE)
    if block:
        map_free(m, block, tag_of(m, block))
    else:
        port.refused += 1
    lock_release(&m.lock)


cdef void* port_malloc_on(Port* port, size_t size, uint64_t stream) noexcept nogil:
    """`size` bytes for work queued on `stream`."""
    cdef Map* m = port.m
    cdef uint32_t block = 0
    cdef uint32_t tag = 0
    cdef uint64_t ptr = 0
    cdef Status status = NO_FIT
    if size == 0:
        return NULL
    if not port.direct:
        lock_acquire(&m.lock)
        if not m.closed:
            status = map_tag(m, stream, &tag)
            if status == DONE:
                status = map_alloc(m, size, 0, tag, True, &block)
            if status == DONE:
                ptr = m.blocks[block].start
        lock_release(&m.lock)
    if status == DONE:
        return <void*>ptr
    return slow_malloc(port, size, stream)


cdef void port_free_on(Port* port, void* ptr, size_t size, uint64_t stream) noexcept nogil:
    """Free what was last used by work queued on `stream`."""
    cdef Map* m = port.m
    cdef uint32_t block
    cdef uint32_t tag = 0
    if ptr == NULL:
        return
    if port.direct or m.closed:
        slow_free(port, <uint64_t>ptr)
        return
    lock_acquire(&m.lock)
    block = find_freeable(m, <uint64_t>ptr, size)
    if block and map_tag(m, stream, &tag) == DONE:
        map_free(m, block, tag)
    else:
        port.refused += 1
    lock_release(&m.lock)


cdef void* slow_malloc(Port* port, size_t size, uint64_t stream) noexcept with gil:
    """By way of the pool's policy, which is Python.  NULL when that fails."""
    try:
        ptr = (<BasePool>port.pool).malloc(size, 0, stream)
        return <void*><uintptr_t>ptr
    except (UmfpyError, MemoryError) as error:
        (<BasePool>port.pool).c_interface().last_error = error
        return NULL


cdef void slow_free(Port* port, uint64_t ptr) noexcept with gil:
    try:
        (<BasePool>port.pool).free(ptr)
    except (UmfpyError, MemoryError) as error:
        (<BasePool>port.pool).c_interface().last_error = error
        port.refused += 1


cdef void* device_malloc(size_t size, int device, void* stream) noexcept nogil:
    if not 0 <= device < MAX_DEVICES or serving[device] == NULL:
        return NULL
    return port_malloc_on(serving[device], size, <uint64_t>stream)


cdef void device_free(void* ptr, size_t size, int device, void* stream) noexcept nogil:
    if 0 <= device < MAX_DEVICES and serving[device] != NULL:
        port_free_on(serving[device], ptr, size, <uint64_t>stream)


cdef class CInterface:
    """The addresses of a pool's C functions; get it from `Pool.c_interface`.

    It pins the pool for the rest of the process: libraries that were given the functions keep
    calling them for memory they still hold, at whatever time.

    Attributes
    ----------
    last_error
        What the last call that answered NULL ran into, or None.
    """

    cdef Port* port
    cdef readonly object pool
    cdef public object last_error

    def __init__(self, BasePool pool):
        self.port = <Port*>calloc(1, sizeof(Port))
        if self.port == NULL:
            raise MemoryError("no host memory for a pool's C interface")
        Py_INCREF(pool)
        lock_share(&pool.m.lock)
        self.pool = pool
        self.port.m = pool.m
        self.port.pool = <void*>pool
        self.port.direct = pool.direct

    @property
    def param(self):
        """What to pass as ``param``: an address."""
        return <uintptr_t>self.port

    @property
    def malloc(self):
        """Address of ``void* malloc(void* param, size_t size, int device)``: CuPy's shape."""
        return <uintptr_t>&port_malloc

    @property
    def free(self):
        """Address of ``void free(void* param, void* ptr, int device)``: CuPy's shape."""
        return <uintptr_t>&port_free

    @property
    def device_malloc(self):
        """Address of ``void* malloc(size_t size, int device, void* stream)``: PyTorch's shape."""
        return <uintptr_t>&device_malloc

    @property
    def device_free(self):
        """Address of ``void free(void* ptr, size_t size, int device, void* stream)``."""
        return <uintptr_t>&device_free

    @property
    def capsule(self):
        """A capsule named ``umfpy.port`` that holds ``param``."""
        return PyCapsule_New(<void*>self.port, "umfpy.port", NULL)

    @property
    def refused(self):
        """How many frees were of memory that was not live here."""
        return self.port.refused

    def serve(self, int device):
        """Have the functions of PyTorch's shape take this pool for a device from now on.

        Raises
        ------
        InvalidArgument
            `device` is out of range, or another pool with live allocations serves it: its memory
            would come back to the wrong pool.
        """
        if not 0 <= device < MAX_DEVICES:
            raise InvalidArgument(f"a device is from 0 to {MAX_DEVICES - 1}, not {device}")
        cdef Port* before = serving[device]
        if before != NULL and before != self.port and (
            before.m.counters.allocations != before.m.counters.frees
        ):
            raise InvalidArgument(
                f"device {device} is served by {(<BasePool>before.pool).name!r}, which has live "
                "allocations; free them first"
            )
        serving[device] = self.port
