"""What may be asked of a pool of slabs, as numbers."""

from __future__ import annotations

from operator import index as as_index
from typing import SupportsIndex

from umfpy.errors import AlignmentError, InvalidArgument

_END = 1 << 64


def checked_size(size: object) -> int:
    """Return a request in bytes; InvalidArgument if it is none."""
    return _number(size, "size")


def checked_alignment(alignment: object) -> int:
    """Return 0 or a power of two; AlignmentError or InvalidArgument for anything else."""
    number = _number(alignment, "alignment")
    if number >= _END:
        raise InvalidArgument(f"alignment must be below 2^64, not {number}")
    if number & (number - 1):
        raise AlignmentError(f"alignment must be 0 or a power of two, not {number}")
    return number


def checked_address(ptr: object) -> int:
    """Return an address; InvalidArgument if it cannot be one."""
    number = _number(ptr, "ptr")
    if number >= _END:
        raise InvalidArgument(f"ptr must be below 2^64, not {number}")
    return number


def _number(value: object, name: str) -> int:
    number = as_index(value) if isinstance(value, SupportsIndex) else -1
    if number < 0:
        raise InvalidArgument(f"{name} must be an integer from 0 on, not {value!r}")
    return number
