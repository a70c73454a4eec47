"""Addresses of host buffers, and contents of host memory."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from umfpy.errors import InvalidArgument
from umfpy.provider import Location


class _PyBuffer(ctypes.Structure):
    """``Py_buffer`` of the C API (Python/C API, Buffer Protocol)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_PYBUF_SIMPLE = 0
_PYBUF_WRITABLE = 1

_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int]
_get_buffer.restype = ctypes.c_int
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.argtypes = [ctypes.POINTER(_PyBuffer)]
_release_buffer.restype = None


class HeldBuffer:
    """A host buffer whose address stays valid until `release`.

    A ``bytearray`` that is held cannot be resized, a NumPy array cannot be reallocated: that is
    what the buffer protocol promises.

    Raises
    ------
    InvalidArgument
        The object has no buffer, one with gaps, or a read-only one where `writable` is asked for.
    """

    def __init__(self, owner: Any, *, writable: bool) -> None:
        self._view = _PyBuffer()
        flags = _PYBUF_WRITABLE if writable else _PYBUF_SIMPLE
        try:
            _get_buffer(owner, ctypes.byref(self._view), flags)
        except (BufferError, TypeError, ValueError) as error:
            need = "writable, contiguous" if writable else "contiguous"
            raise InvalidArgument(
                f"{type(owner).__name__} gives no {need} buffer: {error}"
            ) from None
        self.ptr: int = self._view.buf or 0
        self.size: int = self._view.len

    def release(self) -> None:
        """Let the buffer go; also done when this object goes."""
        _release_buffer(ctypes.byref(self._view))

    __del__ = release


@contextmanager
def address_of(place: Location, size: int, *, writable: bool) -> Iterator[int]:
    """Yield the address of one side of a copy of `size` bytes; a buffer is held meanwhile."""
    if isinstance(place, int):
        yield place
        return
    held = HeldBuffer(place, writable=writable)
    try:
        if held.size < size:
            raise InvalidArgument(
                f"{type(place).__name__} of {held.size} bytes is too small to copy {size} bytes"
            )
        yield held.ptr
    finally:
        held.release()


def copy_host(dst: Location, src: Location, size: int) -> None:
    """Copy `size` bytes between host addresses and buffers, which may overlap."""
    with address_of(dst, size, writable=True) as to, address_of(src, size, writable=False) as of:
        ctypes.memmove(to, of, size)
