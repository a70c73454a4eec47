"""Reserved addresses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.system import (
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_NONE,
    System,
)
from umfpy.providers.level_zero.chunks import Chunk
from umfpy.providers.level_zero.driver import LevelZeroDriver

#: Pieces of one reservation count their origin from its serial number times this, so that those
#: of two reservations that happen to touch are never taken for neighbours.  No reservation is
#: larger: addresses have 47 bits.
_SPAN = 1 << 48


@dataclass
class Reservation:
    """``length`` bytes of addresses at ``ptr``, cut into chunks of ``unit`` bytes.

    ``native`` is what the driver has reserved for them, address and bytes, and wants back.
    ``live`` bytes are in pieces that were not freed yet.
    """

    serial: int
    ptr: int
    length: int
    unit: int
    native: tuple[int, int]
    chunks: list[Chunk] = field(default_factory=list)
    live: int = 0

    def __post_init__(self) -> None:
        self.live = self.length
        starts = range(self.ptr, self.ptr + self.length, self.unit)
        self.chunks = [Chunk(start, self.unit) for start in starts]

    @property
    def origin(self) -> int:
        """The origin of the piece that is the whole."""
        return self.serial * _SPAN

    def part(self, origin: int, size: int) -> list[Chunk]:
        """Return the chunks of the piece of `size` bytes that begins at `origin`."""
        first = origin % _SPAN // self.unit
        return self.chunks[first : first + round_up(size, self.unit) // self.unit]


def serial_of(origin: int) -> int:
    """Return the number of the reservation that a piece is part of."""
    return origin // _SPAN


def reserve(
    driver: LevelZeroDriver,
    system: System,
    context: int,
    length: int,
    alignment: int,
    page_size: Callable[[int], int],
) -> tuple[int, tuple[int, int]]:
    """Return an aligned address, and what was reserved around it: zeVirtualMemReserve.

    `length` and `alignment` are multiples of the page; `page_size` gives that of a request.
    """
    start = _reserve_at(driver, context, _vacant(system, length, alignment), length)
    if not start % alignment:
        return start, (start, length)
    driver.call("zeVirtualMemFree", context, start, length)
    total = round_up(length + alignment, page_size(length + alignment))
    start = _reserve_at(driver, context, _vacant(system, total, alignment), total)
    return round_up(start, alignment), (start, total)


def _reserve_at(driver: LevelZeroDriver, context: int, hint: int, length: int) -> int:
    return driver.make("zeVirtualMemReserve", context, hint, length)


def _vacant(system: System, length: int, alignment: int) -> int:
    """Return an aligned address where nothing is now: a proposal, which a driver need not take.

    It may be null according to the text of the specification, but the list of results below it,
    and so the validation layer, takes null for an error.
    """
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    total = length + alignment
    start = system.call("mmap", None, total, PROT_NONE, flags, -1, 0)
    system.call("munmap", start, total)
    return round_up(start, alignment)
