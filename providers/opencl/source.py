"""What the three ways of taking OpenCL memory have in common."""

from __future__ import annotations

import ctypes
from typing import Any, Protocol

from umfpy.provider import Capability

#: The size in bytes of the largest data type, ``long16``: what every device aligns memory to, and
#: the most that its allocation functions need to understand (OpenCL API, Unified 3.0, clSVMAlloc).
LARGEST_TYPE = 128

#: Bytes of the pattern that zeros are written with.  PoCL writes longer patterns in longer steps.
_PATTERN = 16

_PYBUF_WRITE = 0x200
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
_view.restype = ctypes.py_object


class Source(Protocol):
    """One way of taking memory.  Addresses lie in what it gave, sizes are bytes above 0.

    What is queued is done in order; with `wait` it is done when the call returns.
    """

    #: What it can do besides `Capability.ZERO`, `COPY` and `STREAMS`, which each of them can.
    capabilities: Capability

    def take(self, size: int, alignment: int) -> tuple[int, int]:
        """Return what `give` wants, and the aligned address, of `size` fresh bytes."""

    def give(self, origin: int) -> None:
        """Free an allocation that no queue uses any more."""

    def zero(self, queue: Any, ptr: int, size: int, *, wait: bool) -> None:
        """Write zeros."""

    def copy(self, queue: Any, dst: int, src: int, size: int, *, wait: bool) -> None:
        """Copy between two of its addresses."""

    def write(self, queue: Any, dst: int, host: int, size: int) -> None:
        """Copy from the host's ordinary memory, and wait."""

    def read(self, queue: Any, host: int, src: int, size: int) -> None:
        """Copy to the host's ordinary memory, and wait."""

    def argument(self, ptr: int, size: int) -> Any:
        """Return what pyopencl takes for the memory, as a kernel's argument and elsewhere."""


def memory_at(ptr: int, size: int) -> Any:
    """Return an object whose buffer is the memory at an address; it keeps nothing alive.

    The address may be a device's, which nobody but a driver must follow.
    """
    return _view(ptr, size, _PYBUF_WRITE)


def zero_steps(offset: int, size: int) -> list[tuple[int, int, bytes]]:
    """Return (offset, size, pattern) of the fills that write zeros over a range.

    Offset and size of a fill must be multiples of its pattern (clEnqueueFillBuffer,
    clEnqueueSVMMemFill, clEnqueueMemFillINTEL).
    """
    first = min(-offset % _PATTERN, size)
    whole = (size - first) // _PATTERN * _PATTERN
    steps = [
        (offset, first, b"\0"),
        (offset + first, whole, bytes(_PATTERN)),
        (offset + first + whole, size - first - whole, b"\0"),
    ]
    return [step for step in steps if step[1]]
