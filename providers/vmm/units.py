"""In which sizes memory is taken from a driver."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from umfpy.arguments import check_number
from umfpy.errors import InvalidArgument
from umfpy.providers.host.arguments import is_power_of_two, round_up
from umfpy.units import format_size, parse_size

#: An allocation is cut into about this many chunks, so that parts of it can go by themselves.
#: Each costs its own calls: in the modelled latencies of CUDA four make an allocation of 100 MiB
#: half again as expensive as one does, and eight twice.
PARTS = 4

#: No chunk is larger: 1 GiB costs per byte hardly more than one allocation of all.
LARGEST = 1 << 30

#: No address space has more.
_MOST_ADDRESSES = (1 << 63) - 1


@dataclass(frozen=True)
class Units:
    """The sizes of chunks.

    All are multiples of ``page``, a power of two, and addresses are, too.  With ``fixed`` every
    chunk has that many bytes, a multiple of the page; else at most ``largest``.
    """

    page: int
    fixed: int | None = None
    largest: int = LARGEST

    @property
    def unit(self) -> int:
        """Bytes of the smallest chunk."""
        return self.fixed or self.page

    def length(self, size: int) -> int:
        """Return the bytes of the chunks behind `size` bytes."""
        return round_up(size, self.unit)

    def usual(self, size: int) -> int:
        """Return the bytes of most chunks of an allocation of `size` bytes, a power of two."""
        if self.fixed:
            return self.fixed
        share = max(size // PARTS, 1)
        return max(min(1 << (share.bit_length() - 1), self.largest), self.page)

    def layout(self, size: int, wanted: int | None = None) -> Iterator[int]:
        """Yield the bytes of chunks that make up `size`, a multiple of the unit.

        As many as possible have the `wanted` size, or the usual one, and the rest powers of two
        times the page, so that nothing is lost by rounding, and chunks of one allocation fit in
        another.
        """
        most = min(wanted, self.largest) if wanted and not self.fixed else self.usual(size)
        while size:
            if most > size:
                most = self.page << ((size // self.page).bit_length() - 1)
            yield most
            size -= most


def check_reserve(wanted: int | str | None, usual: int) -> int:
    """Return the bytes of addresses to reserve at once; `usual` if the caller leaves it open.

    Raises
    ------
    InvalidArgument
        It is no size, or more than there can be addresses.
    """
    if wanted is None:
        return usual
    return check_number(parse_size(wanted), "reserve", most=_MOST_ADDRESSES)


def check_chunk_size(wanted: int | str | None, least: int, most: int) -> int | None:
    """Return the bytes that every chunk is to have; None if they are to follow the request.

    Raises
    ------
    InvalidArgument
        No power of two, below `least`, the device's unit, or beyond `most`, all that it has.
    """
    if wanted is None:
        return None
    size = parse_size(wanted)
    if not is_power_of_two(size) or size < least:
        raise InvalidArgument(
            f"chunk_size is {size}; it must be a power of two, at least this device's unit of "
            f"{format_size(least)} ({least} bytes)"
        )
    if size > most:
        raise InvalidArgument(
            f"chunk_size is {size}; it must be at most what this device has, "
            f"{format_size(most)} ({most} bytes)"
        )
    return size
