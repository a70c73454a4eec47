# cython: language_level=3, boundscheck=False, wraparound=False
"""DLPack's structures, and the capsules that carry them from one library to another.

Compiled, because both kinds of destructors are called by C: that of a capsule in the middle of
whatever error is being raised, that of a tensor from any thread, with the GIL or without.

Source: dlpack.h of DLPack 1.0 (dmlc/dlpack), and "Python Specification for DLPack" there.
"""

cimport cython
from cpython.exc cimport PyErr_Fetch, PyErr_Restore
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_SetName
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc

from umfpy.errors import InvalidArgument, NotSupported

cdef extern from "Python.h":
    ctypedef void (*Destructor)(PyObject*) noexcept
    object PyCapsule_New(void* pointer, const char* name, Destructor destructor)
    bint dying_is_valid "PyCapsule_IsValid"(PyObject* capsule, const char* name) noexcept
    void* dying_pointer "PyCapsule_GetPointer"(PyObject* capsule, const char* name) noexcept
    bint Py_IsInitialized() noexcept nogil

cdef const char* NAME = "dltensor"
cdef const char* USED_NAME = "used_dltensor"
cdef const char* VERSIONED_NAME = "dltensor_versioned"
cdef const char* USED_VERSIONED_NAME = "used_dltensor_versioned"

# What is spoken here.
VERSION = (1, 0)

cdef enum:
    MAJOR = 1
    MINOR = 0
    READ_ONLY = 1  # DLPACK_FLAG_BITMASK_READ_ONLY

ctypedef struct DLDevice:
    int32_t device_type
    int32_t device_id

ctypedef struct DLDataType:
    uint8_t code
    uint8_t bits
    uint16_t lanes

ctypedef struct DLTensor:
    void* data
    DLDevice device
    int32_t ndim
    DLDataType dtype
    int64_t* shape
    int64_t* strides  # in elements; NULL: C-contiguous
    uint64_t byte_offset

# What the capsules of before DLPack 1.0 point to.
ctypedef struct Plain "DLManagedTensor":
    DLTensor tensor
    void* context
    void (*deleter)(Plain*) noexcept nogil

# What versioned ones point to; the layout up to `flags` never changes.
ctypedef struct Versioned "DLManagedTensorVersioned":
    uint32_t major
    uint32_t minor
    void* context
    void (*deleter)(Versioned*) noexcept nogil
    uint64_t flags
    DLTensor tensor

# Exported tensors that have not been given back; changed with the GIL held.
cdef Py_ssize_t _live = 0


def live_count():
    """Return how many exported tensors have not been given back."""
    return _live


# Exporting.

cdef void _release(PyObject* keep) noexcept with gil:
    """Drop what a tensor kept alive; an error that is being raised stays."""
    global _live
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    PyErr_Fetch(&kind, &value, &trace)
    _live -= 1
    Py_DECREF(<object>keep)
    PyErr_Restore(kind, value, trace)


cdef void _delete_plain(Plain* managed) noexcept nogil:
    # Once the interpreter is gone there is nobody to give anything back to.
    if Py_IsInitialized():
        _release(<PyObject*>managed.context)
        free(managed)


cdef void _delete_versioned(Versioned* managed) noexcept nogil:
    if Py_IsInitialized():
        _release(<PyObject*>managed.context)
        free(managed)


cdef void _drop_plain(PyObject* capsule) noexcept:
    """A capsule dies; if nobody took its tensor over, that goes with it."""
    if dying_is_valid(capsule, NAME):
        _delete_plain(<Plain*>dying_pointer(capsule, NAME))


cdef void _drop_versioned(PyObject* capsule) noexcept:
    if dying_is_valid(capsule, VERSIONED_NAME):
        _delete_versioned(<Versioned*>dying_pointer(capsule, VERSIONED_NAME))


cdef void _fill(
    DLTensor* tensor, int64_t* lengths, uintptr_t data, tuple device, tuple dtype, tuple shape,
    tuple strides,
) except *:
    cdef Py_ssize_t axis, ndim = len(shape)
    tensor.data = <void*>data
    tensor.device.device_type, tensor.device.device_id = device
    tensor.dtype.code, tensor.dtype.bits, tensor.dtype.lanes = dtype
    tensor.ndim = <int32_t>ndim
    tensor.shape = lengths
    tensor.strides = lengths + ndim
    tensor.byte_offset = 0
    for axis in range(ndim):
        tensor.shape[axis] = shape[axis]
        tensor.strides[axis] = strides[axis]


def make_capsule(
    data, *, tuple device, tuple dtype, tuple shape, tuple strides, bint read_only, bint versioned,
    keep,
):
    """Return a new capsule, which keeps `keep` alive until its consumer is done.

    Parameters
    ----------
    data
        The address, or the handle that stands for one.
    device
        DLPack's type and ordinal.
    dtype
        DLPack's code, bits and lanes.
    shape, strides
        By axis, in elements.
    versioned
        Whether the consumer knows DLPack 1.0; only then can `read_only` be said.
    """
    global _live
    cdef size_t head = sizeof(Versioned) if versioned else sizeof(Plain)
    cdef char* block = <char*>malloc(head + 2 * len(shape) * sizeof(int64_t))
    cdef Plain* plain = <Plain*>block
    cdef Versioned* newer = <Versioned*>block
    cdef DLTensor* tensor = &newer.tensor if versioned else &plain.tensor
    if block == NULL:
        raise MemoryError()
    try:
        _fill(tensor, <int64_t*>(block + head), data, device, dtype, shape, strides)
        if versioned:
            newer.major, newer.minor, newer.flags = MAJOR, MINOR, READ_ONLY if read_only else 0
            newer.context, newer.deleter = <void*>keep, _delete_versioned
            capsule = PyCapsule_New(block, VERSIONED_NAME, _drop_versioned)
        else:
            plain.context, plain.deleter = <void*>keep, _delete_plain
            capsule = PyCapsule_New(block, NAME, _drop_plain)
    except BaseException:
        free(block)
        raise
    Py_INCREF(keep)
    _live += 1
    return capsule


# Importing.

@cython.final
cdef class Taken:
    """A tensor out of somebody's capsule, given back to its owner when this object goes.

    Raises
    ------
    InvalidArgument
        It is no DLPack capsule, or was used already.
    NotSupported
        It is one of a newer DLPack; the capsule is as it was.
    """

    cdef Plain* plain
    cdef Versioned* versioned
    cdef DLTensor* tensor

    def __init__(self, capsule):
        if self.tensor != NULL:
            raise InvalidArgument("this has a tensor already")
        if PyCapsule_IsValid(capsule, VERSIONED_NAME):
            self._take_versioned(capsule)
        elif PyCapsule_IsValid(capsule, NAME):
            self.plain = <Plain*>PyCapsule_GetPointer(capsule, NAME)
            PyCapsule_SetName(capsule, USED_NAME)
            self.tensor = &self.plain.tensor
        else:
            raise InvalidArgument(f"{capsule!r} is no DLPack capsule, or was used already")

    def _take_versioned(self, capsule):
        cdef Versioned* found = <Versioned*>PyCapsule_GetPointer(capsule, VERSIONED_NAME)
        if found.major > MAJOR:
            raise NotSupported(
                f"DLPack {found.major}.{found.minor} was sent; {MAJOR}.{MINOR} is spoken here"
            )
        PyCapsule_SetName(capsule, USED_VERSIONED_NAME)
        self.versioned = found
        self.tensor = &found.tensor

    def __dealloc__(self):
        cdef PyObject* kind
        cdef PyObject* value
        cdef PyObject* trace
        PyErr_Fetch(&kind, &value, &trace)
        if self.plain != NULL and self.plain.deleter != NULL:
            self.plain.deleter(self.plain)
        if self.versioned != NULL and self.versioned.deleter != NULL:
            self.versioned.deleter(self.versioned)
        PyErr_Restore(kind, value, trace)

    @property
    def data(self):
        """The address of the first element, or the handle that stands for one."""
        return <uintptr_t>self.tensor.data + self.tensor.byte_offset

    @property
    def device(self):
        """DLPack's type and ordinal."""
        return self.tensor.device.device_type, self.tensor.device.device_id

    @property
    def dtype(self):
        """DLPack's code, bits and lanes."""
        return self.tensor.dtype.code, self.tensor.dtype.bits, self.tensor.dtype.lanes

    @property
    def shape(self):
        """Lengths by axis."""
        return tuple([self.tensor.shape[axis] for axis in range(self.tensor.ndim)])

    @property
    def strides(self):
        """Steps by axis in elements; None: C-contiguous."""
        if self.tensor.strides == NULL:
            return None
        return tuple([self.tensor.strides[axis] for axis in range(self.tensor.ndim)])

    @property
    def read_only(self):
        """Whether the owner forbids writing; before DLPack 1.0 nobody could say so."""
        return self.versioned != NULL and bool(self.versioned.flags & READ_ONLY)
