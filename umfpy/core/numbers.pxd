"""Python numbers as addresses and sizes."""

from cpython.exc cimport PyErr_Clear, PyErr_Occurred
from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    # Without an exception clause: a check of the error indicator is cheaper than a `try`.
    uint64_t _as_unsigned "PyLong_AsUnsignedLongLong"(object value) noexcept
    object _index "PyNumber_Index"(object value)

cdef enum:
    ANY_SIZE = 0xFFFFFFFFFFFFFFFF  # "no size given"; no block is that large
    NO_SIZE = 0xFFFFFFFFFFFFFFFE  # what is given for it: no block is that large either


cdef inline uint64_t as_u64(object value, str what) except? 0xFFFFFFFFFFFFFFFF:
    """An integer of 64 bits without sign; InvalidArgument, naming `what`, for anything else."""
    cdef uint64_t number
    if PyLong_CheckExact(value):
        number = _as_unsigned(value)
        if number != <uint64_t>ANY_SIZE or not PyErr_Occurred():
            return number
        PyErr_Clear()
    elif hasattr(value, "__index__"):
        return as_u64(_index(value), what)
    from umfpy.errors import InvalidArgument

    raise InvalidArgument(f"{what} must be an integer from 0 to 2^64 - 1, not {value!r}")
