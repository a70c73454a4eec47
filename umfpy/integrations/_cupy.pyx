# cython: language_level=3, boundscheck=False, wraparound=False
"""The short way from CuPy's request for memory to a pool.

CuPy's modules ask each other for the current device and stream by C functions, which Cython
publishes under their names and signatures.  They are private to CuPy: whoever hands them to
`Fast` has seen that they answer what CuPy's public functions do.
"""

cimport cython
from cpython.exc cimport PyErr_Clear
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid
from libc.stdint cimport intptr_t

from umfpy.core.pool cimport Allocation

from umfpy.errors import InvalidArgument, OutOfMemoryError

cdef enum:
    FAILED = -1  # and an exception is set
    LEGACY = 1  # CU_STREAM_LEGACY: another name of stream 0
    PER_THREAD = 2  # CU_STREAM_PER_THREAD: one name, a stream of its own in each thread

# Without exception clauses: what fails is left to the allocator in Python, error and all.
ctypedef int (*DeviceFunction)(int skip_dispatch) noexcept
ctypedef intptr_t (*StreamFunction)(int device) noexcept

DEVICE_SIGNATURE = b"int (int __pyx_skip_dispatch)"
STREAM_SIGNATURE = b"intptr_t (int)"


cdef void* function_in(capsule, bytes signature) except NULL:
    if not PyCapsule_IsValid(capsule, signature):
        raise InvalidArgument(f"{capsule!r} is no {signature.decode()}")
    return PyCapsule_GetPointer(capsule, signature)


@cython.final
cdef class Fast:
    """``Fast(...)(size)`` is ``allocator(size)``, in less time.

    What is not plain (no pool for the device, no bytes, a stream with a special name, a runtime
    that answers with an error) goes to `allocator` itself.

    Parameters
    ----------
    allocator
        A `umfpy.integrations.cupy.Allocator`.
    device, stream
        Capsules of C functions: the current device of this thread, and its current stream there.
    memory, pointer
        ``cupy.cuda.UnownedMemory`` and ``cupy.cuda.MemoryPointer``.

    Raises
    ------
    InvalidArgument
        A capsule holds something else.
    """

    cdef readonly object allocator
    cdef dict pools
    cdef object memory
    cdef object pointer
    cdef DeviceFunction device_function
    cdef StreamFunction stream_function

    def __init__(self, allocator, *, device, stream, memory, pointer):
        self.device_function = <DeviceFunction>function_in(device, DEVICE_SIGNATURE)
        self.stream_function = <StreamFunction>function_in(stream, STREAM_SIGNATURE)
        self.allocator = allocator
        self.pools = allocator.pools
        self.memory = memory
        self.pointer = pointer

    def __call__(self, size):
        cdef Allocation allocation
        cdef intptr_t stream = FAILED
        cdef int device = self.device_function(0)
        if device >= 0:
            stream = self.stream_function(device)
        if stream == FAILED:
            PyErr_Clear()  # the allocator meets the same error, and knows what to make of it
            return self.allocator(size)
        pool = self.pools.get(device)
        if pool is None or not size or stream == LEGACY or stream == PER_THREAD:
            return self.allocator(size)
        try:
            allocation = pool.allocate(size, 0, stream) if stream else pool.allocate(size)
        except OutOfMemoryError as error:
            raise self.allocator.out_of_memory(error) from error
        # Dropping the memory drops the allocation, in whatever thread, on whatever device.
        memory = self.memory(allocation.grant.start, size, allocation, device)
        return self.pointer(memory, 0)

    def current(self):
        """Return the device and the stream that the C functions name, None where they fail."""
        cdef int device = self.device_function(0)
        cdef intptr_t stream = self.stream_function(device) if device >= 0 else FAILED
        if stream == FAILED:
            PyErr_Clear()
            return None
        return device, stream

    def __repr__(self):
        return f"Fast({self.allocator!r})"
