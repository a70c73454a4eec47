"""What every back end checks before it asks its driver."""

from __future__ import annotations

import operator

from umfpy.arguments import as_number
from umfpy.errors import AlignmentError, InvalidArgument, OutOfMemoryError
from umfpy.units import format_size

#: Beyond this no system call can take a length: ``off_t`` and ``ptrdiff_t`` are signed.
_LONGEST = (1 << 63) - 1

#: User addresses have 47 bits on every 64-bit system that umfpy runs on (Linux,
#: Documentation/arch/x86/x86_64/mm.rst); no address can be aligned to more.
_LARGEST_ALIGNMENT = 1 << 46


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of `unit`, a power of two, that is at least `value`."""
    return (value + unit - 1) & -unit


def is_power_of_two(value: int) -> bool:
    """Return whether `value` is 1, 2, 4, ..."""
    return value > 0 and value & (value - 1) == 0


def check_unit(wanted: int | None, granularity: int) -> int | None:
    """Return the `chunk_size` that a `commit` asks for, None if it does not care.

    Raises
    ------
    InvalidArgument
        It is not a multiple of the granularity, above 0.
    """
    if wanted is None:
        return None
    size = as_number(wanted)
    if size is None or size < 1 or size % granularity:
        raise InvalidArgument(
            f"chunk_size is {wanted!r}; it must be a multiple of the granularity, {granularity} "
            f"bytes ({format_size(granularity)}), or None"
        )
    return size


def check_request(size: int, alignment: int, provider: str) -> tuple[int, int]:
    """Return `size` and `alignment` in bytes as plain integers, if a driver may be asked for them.

    Raises
    ------
    InvalidArgument
        `size` is below 1, or one of them is no whole number.
    AlignmentError
        `alignment` is neither 0 nor a power of two, or beyond any address.
    OutOfMemoryError
        `size` does not fit in any address space; it must never reach a call that would wrap it.
    """
    try:
        size, alignment = operator.index(size), operator.index(alignment)
    except TypeError:
        raise InvalidArgument(
            f"size and alignment must be whole numbers of bytes, not {size!r} and {alignment!r}"
        ) from None
    if size < 1:
        raise InvalidArgument(f"a provider allocates at least 1 byte, not {size}")
    if alignment and not is_power_of_two(alignment):
        raise AlignmentError(f"alignment {alignment} is not a power of two; 0 asks for the default")
    if alignment > _LARGEST_ALIGNMENT:
        raise AlignmentError(
            f"alignment {alignment} is more than an address can have; the largest is "
            f"{_LARGEST_ALIGNMENT}"
        )
    if size + 2 * alignment > _LONGEST:
        raise OutOfMemoryError(
            f"{provider} cannot allocate {size} bytes ({format_size(size)}): "
            "no address space is that large",
            requested=size,
            provider=provider,
        )
    return size, alignment
