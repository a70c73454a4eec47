"""Python numbers as addresses and sizes."""

from cpython.long cimport PyLong_CheckExact
from libc.stdint cimport uint64_t

cdef extern from "Python.h":
    uint64_t PyLong_AsUnsignedLongLong(object value) except? 0xFFFFFFFFFFFFFFFF
    object PyNumber_Index(object value)

cdef enum:
    ANY_SIZE = 0xFFFFFFFFFFFFFFFF  # "no size given"; no block is that large


cdef inline uint64_t as_u64(object value, str what) except? 0xFFFFFFFFFFFFFFFF:
    """An integer of 64 bits without sign; InvalidArgument, naming `what`, for anything else."""
    try:
        if PyLong_CheckExact(value):
            return PyLong_AsUnsignedLongLong(value)
        return PyLong_AsUnsignedLongLong(PyNumber_Index(value))
    except (OverflowError, TypeError):
        from umfpy.errors import InvalidArgument

        raise InvalidArgument(
            f"{what} must be an integer from 0 to 2^64 - 1, not {value!r}"
        ) from None
