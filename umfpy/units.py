"""Sizes in bytes, read from and written for people."""

from __future__ import annotations

import re
from typing import SupportsIndex

from umfpy.arguments import as_number
from umfpy.errors import InvalidArgument

_FACTORS = {
    "": 1,
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)


def parse_size(size: SupportsIndex | str) -> int:
    """Return `size` in bytes; text such as ``"16GiB"``, ``"1.5 MiB"`` or ``"512"`` is read.

    ``K``, ``M``, ``G`` and ``T`` alone, or with ``iB``, are powers of 1024; ``kB``, ``MB``, ``GB``
    and ``TB`` are powers of 1000.

    Raises
    ------
    InvalidArgument
        `size` is negative, text that is not a whole number of bytes, or neither a whole number
        nor text.
    """
    if not isinstance(size, str):
        return _checked(size)
    match = _SIZE.fullmatch(size)
    factor = _FACTORS.get(match[2].lower()) if match else None
    if match is None or factor is None:
        raise InvalidArgument(
            f"cannot read {size!r} as a size; write bytes, or a number with KiB, MiB, GiB or TiB"
        )
    if "." not in match[1]:
        return int(match[1]) * factor
    exact = float(match[1]) * factor
    if not exact.is_integer():
        raise InvalidArgument(f"{size!r} is not a whole number of bytes: {exact}")
    return int(exact)


def _checked(size: SupportsIndex) -> int:
    number = as_number(size)
    if number is None:
        raise InvalidArgument(
            f"a size is a whole number of bytes, or text such as '64MiB', not {size!r}"
        )
    if number < 0:
        raise InvalidArgument(f"a size cannot be negative: {number}")
    return number


def format_size(size: int) -> str:
    """Return `size` bytes for people: ``"1.50 MiB"``; below 1 KiB exact, ``"512 B"``."""
    if size < 1024:
        return f"{size} B"
    value = float(size)
    for unit in ("KiB", "MiB", "GiB", "TiB", "PiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.2f} {unit}"
    return f"{value:.2f} PiB"
