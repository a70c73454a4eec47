# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""A pool for callers without the GIL; `cinterface.pxd` says what the functions promise."""

from cpython.pycapsule cimport PyCapsule_New
from cpython.ref cimport Py_INCREF
from libc.stdint cimport uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport calloc

from umfpy.core.extent_map cimport map_alloc, map_free, map_tag
from umfpy.core.extents cimport find_freeable
from umfpy.core.lock cimport lock_acquire, lock_release, lock_share
from umfpy.core.numbers cimport ANY_SIZE
from umfpy.core.pool cimport BasePool
from umfpy.core.structs cimport DONE, NO_FIT, TAG_MASK, Map, Status, tag_of

from umfpy.errors import InvalidArgument

cdef extern from "Python.h" nogil:
    bint Py_IsInitialized() noexcept

cdef extern from * nogil:
    # Builtins of gcc and clang; the memory orders are their constants.
    void* _load "__atomic_load_n"(void** at, int order) noexcept
    void _store "__atomic_store_n"(void** at, void* value, int order) noexcept
    uint64_t _count "__atomic_load_n"(uint64_t* at, int order) noexcept
    uint64_t _add "__atomic_fetch_add"(uint64_t* at, uint64_t value, int order) noexcept
    const int ACQUIRE "__ATOMIC_ACQUIRE"
    const int RELEASE "__ATOMIC_RELEASE"
    const int RELAXED "__ATOMIC_RELAXED"

cdef enum:
    MAX_DEVICES = 256
    OF_MALLOC = 0  # whether a free says on which stream: the one of the malloc, or another
    OF_FREE = 1

cdef uint64_t SEVERAL = 0xFFFFFFFFFFFFFFFE  # the "stream" of memory that several streams use

# A pool that has served a device.
cdef struct Service:
    Port* port
    Service* before

cdef void* serving[256]  # [device] the Port that answers calls in PyTorch's shape; atomic
cdef void* services[256]  # [device] every Service so far, the newest first; atomic, never freed


# One pool, by its lock alone.


cdef inline void* give_out(Port* port, size_t size, uint64_t stream) noexcept nogil:
    """`size` bytes for work queued on `stream`."""
    cdef Map* m = port.m
    cdef uint32_t block = 0
    cdef uint32_t tag = 0
    cdef uint64_t ptr = 0
    cdef Status status = NO_FIT
    if size == 0:
        return NULL
    if not port.direct and not port.zeroed:
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
    return slow_malloc(port, size, stream) if Py_IsInitialized() else NULL


cdef inline bint take_back(
    Port* port, uint64_t ptr, uint64_t size, bint which, uint64_t stream
) noexcept nogil:
    """Free a live block; False, with nothing done, where this pool has none like that."""
    cdef Map* m = port.m
    cdef uint32_t block = 0
    cdef uint32_t tag
    cdef Status status = NO_FIT
    lock_acquire(&m.lock)
    if not m.foreign:
        block = find_freeable(m, ptr, size)
    if block and not port.direct and not m.closed:
        tag = tag_of(m, block)
        status = DONE
        if which == OF_FREE and m.shelves[tag].stream != SEVERAL:
            status = map_tag(m, stream, &tag)
        if status == DONE:
            map_free(m, block, tag)
    lock_release(&m.lock)
    if status == DONE:
        return True
    return block and Py_IsInitialized() and slow_free(port, ptr, which, stream)


cdef bint mark_shared(Port* port, uint64_t ptr, uint64_t stream) noexcept nogil:
    """Note that `stream` uses a live block too; False where this pool has no such block."""
    cdef Map* m = port.m
    cdef uint32_t block = 0
    cdef uint32_t tag = 0
    lock_acquire(&m.lock)
    if not m.foreign:
        block = find_freeable(m, ptr, ANY_SIZE)
    if block and m.ordered and m.shelves[tag_of(m, block)].stream != stream:
        if map_tag(m, SEVERAL, &tag) == DONE:
            m.blocks[block].home = (m.blocks[block].home & ~<uint32_t>TAG_MASK) | tag
    lock_release(&m.lock)
    return block != 0


# One pool, by way of its policy, which is Python.


cdef void* slow_malloc(Port* port, size_t size, uint64_t stream) noexcept with gil:
    """NULL when it fails."""
    cdef CInterface interface = <CInterface>port.interface
    try:
        return <void*><uintptr_t>interface.pool.malloc(size, 0, stream)
    except Exception as error:  # noqa: BLE001  (there is nobody to raise at)
        interface.last_error = error
        return NULL


cdef bint slow_free(Port* port, uint64_t ptr, bint which, uint64_t stream) noexcept with gil:
    cdef CInterface interface = <CInterface>port.interface
    try:
        interface.pool.free(ptr, None, stream if which == OF_FREE else None)
    except Exception as error:  # noqa: BLE001  (there is nobody to raise at)
        interface.last_error = error
        return False
    return True


# CuPy's shape.


cdef void* port_malloc(void* param, size_t size, int device) noexcept nogil:
    return give_out(<Port*>param, size, 0)


cdef void port_free(void* param, void* ptr, int device) noexcept nogil:
    cdef Port* port = <Port*>param
    if ptr != NULL and not take_back(port, <uint64_t>ptr, ANY_SIZE, OF_MALLOC, 0):
        _add(&port.refused, 1, RELAXED)


# PyTorch's shape.


cdef inline Port* server_of(int device) noexcept nogil:
    """Who serves a device now; NULL for nobody."""
    if not 0 <= device < MAX_DEVICES:
        return NULL
    return <Port*>_load(&serving[device], ACQUIRE)


cdef void* device_malloc(size_t size, int device, void* stream) noexcept nogil:
    cdef Port* port = server_of(device)
    return NULL if port == NULL else give_out(port, size, <uint64_t>stream)


cdef void device_free(void* ptr, size_t size, int device, void* stream) noexcept nogil:
    cdef Port* port = server_of(device)
    cdef Service* other
    if ptr == NULL or port == NULL:
        return
    if take_back(port, <uint64_t>ptr, size, OF_FREE, <uint64_t>stream):
        return
    # It may be memory of a pool that served the device before.
    other = <Service*>_load(&services[device], ACQUIRE)
    while other != NULL:
        if other.port != port and take_back(
            other.port, <uint64_t>ptr, size, OF_FREE, <uint64_t>stream
        ):
            return
        other = other.before
    _add(&port.refused, 1, RELAXED)


cdef void device_record(void* ptr, void* stream) noexcept nogil:
    cdef int device
    cdef Service* service
    for device in range(MAX_DEVICES):
        service = <Service*>_load(&services[device], ACQUIRE)
        while service != NULL:
            if mark_shared(service.port, <uint64_t>ptr, <uint64_t>stream):
                return
            service = service.before


cdef enlist(Port* port, int device):
    """Enter a port among those that have served a device; once is enough."""
    cdef Service* service = <Service*>services[device]
    while service != NULL:
        if service.port == port:
            return
        service = service.before
    service = <Service*>calloc(1, sizeof(Service))
    if service == NULL:
        raise MemoryError("no host memory to have a pool serve a device")
    service.port = port
    service.before = <Service*>services[device]
    _store(&services[device], service, RELEASE)


cdef class CInterface:
    """The addresses of a pool's C functions; get it from `Pool.c_interface`.

    It pins the pool for the rest of the process: libraries that were given the functions keep
    calling them for memory they still hold, at whatever time.

    Attributes
    ----------
    pool
        The pool.
    last_error
        What the last call that failed in the pool ran into, or None.
    """

    cdef Port* port
    cdef readonly BasePool pool
    cdef public object last_error

    def __cinit__(self, BasePool pool not None):
        self.port = <Port*>calloc(1, sizeof(Port))
        if self.port == NULL:
            raise MemoryError("no host memory for a pool's C interface")
        self.pool = pool
        self.port.functions = Functions(
            <void*>self.port, port_malloc, port_free, device_malloc, device_free, device_record
        )
        self.port.m = pool.m
        self.port.direct = pool.direct
        self.port.zeroed = pool.zeroed
        self.port.interface = <void*>self
        Py_INCREF(self)
        lock_share(&pool.m.lock)

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
    def device_record(self):
        """Address of ``void record(void* ptr, void* stream)``: PyTorch's ``record_stream``."""
        return <uintptr_t>&device_record

    @property
    def capsule(self):
        """A capsule named ``umfpy.port.1``; it holds the `Functions` of ``cinterface.pxd``."""
        return PyCapsule_New(&self.port.functions, "umfpy.port.1", NULL)

    @property
    def refused(self):
        """How many frees were of memory that was not live here, or failed in the pool."""
        return _count(&self.port.refused, RELAXED)

    def serve(self, int device):
        """Have the functions of PyTorch's shape take this pool for a device from now on.

        Memory of the pool that served the device before stays valid, and goes back there.

        Raises
        ------
        InvalidArgument
            `device` is out of range.
        """
        if not 0 <= device < MAX_DEVICES:
            raise InvalidArgument(f"a device is from 0 to {MAX_DEVICES - 1}, not {device}")
        enlist(self.port, device)
        _store(&serving[device], self.port, RELEASE)
