"""Arrays in memory: their order, and host memory as a buffer that keeps its owner alive."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from umfpy.arguments import as_number, check_items, check_number


def memory_of(owner: Any, ptr: int, size: int, *, read_only: bool) -> memoryview:
    """Return `size` bytes at `ptr` as a memoryview of bytes, which keeps `owner` alive."""
    array: Any = (ctypes.c_ubyte * size).from_address(ptr)
    # What a memoryview is of stays alive with it, and with what NumPy makes of it.
    array.owner = owner
    view = memoryview(array).cast("B")
    return view.toreadonly() if read_only else view


def lengths_of(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the lengths of the axes; a number alone is that of the only one."""
    if as_number(shape) is not None:
        shape = (shape,)  # type: ignore[assignment]
    lengths = check_items(shape, "shape", "lengths")  # type: ignore[arg-type]
    return tuple(check_number(length, "a length of a shape") for length in lengths)


def c_order(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the steps in elements, by axis, of an array without gaps in C order."""
    steps, step = [], 1
    for length in reversed(shape):
        steps.append(step)
        step *= max(length, 1)
    return tuple(reversed(steps))
