"""How much memory a pool over virtual memory takes at a time, and in what chunks."""

from __future__ import annotations

from dataclasses import dataclass

from umfpy.errors import InvalidArgument
from umfpy.pools.growth import round_up, take_numbers


@dataclass(frozen=True)
class VirtualGrowth:
    """Steps that follow what is held, and chunks that follow what lies idle.

    A driver call costs about as much for 2 MiB as for some dozen, so that many small chunks cost
    much more than few large ones.  But a chunk can only be taken elsewhere if nothing in it is
    used: large ones keep free memory where it is.  So chunks are as large as a whole step as long
    as nearly everything is used, and the smaller the more lies idle between used blocks; and
    they are small from the beginning where the device is about to be full.

    Attributes
    ----------
    small_until
        A pool that holds less takes what the request needs, and no more.
    minimum, divisor
        Above that the step is what the pool holds, divided by this, and at least `minimum` bytes.
    parts, idle
        With this share of the held memory idle, a step is cut into so many chunks, and into
        fewer with less.
    finest
        But no chunk is less than what the pool holds, divided by this.
    largest
        Bytes of the largest chunk.
    scarce, left
        Once this share of the device is held, no chunk is larger than what the device has
        left, divided by `left`.
    """

    small_until: int = 256 << 20
    minimum: int = 24 << 20
    divisor: int = 40
    parts: int = 6
    idle: float = 0.04
    finest: int = 100
    largest: int = 256 << 20
    scarce: float = 0.3
    left: int = 8192

    def __post_init__(self) -> None:
        take_numbers(
            self, "small_until", "minimum", "divisor", "parts", "finest", "largest", "left"
        )
        numbers = (self.divisor, self.parts, self.finest, self.largest, self.left)
        if min(numbers) < 1 or min(self.small_until, self.minimum) < 0:
            raise InvalidArgument(f"sizes and divisors must be positive, not {self}")
        if not (_is_share(self.idle) and _is_share(self.scarce)):
            raise InvalidArgument(f"shares must be above 0 and at most 1, not {self}")

    def step(self, held: int) -> int:
        """Return how many bytes to take at least, for a pool that holds so many."""
        if held < self.small_until:
            return 0
        return max(held // self.divisor, self.minimum)

    def chunk_size(self, new: int, held: int, idle: int, total: int | None, unit: int) -> int:
        """Return the bytes of the chunks that `new` bytes are to be made of, in whole units.

        Parameters
        ----------
        held, idle
            The bytes that the pool holds, and those of them that are free and no use.
        total
            The bytes that the device has; None if that is unknown.
        """
        parts = self.parts * idle / (self.idle * held) if held else 1.0
        size = max(new / min(max(parts, 1.0), self.parts), min(held / self.finest, new))
        size = min(size, self.largest)
        if total is not None and held >= self.scarce * total:
            size = min(size, max(total - held, 0) / self.left)
        # As many as that makes, but all alike.
        count = -(-new // round_up(int(size), unit))
        return round_up(-(-new // count), unit)


def _is_share(number: object) -> bool:
    """Whether it is a number above 0, and at most 1; no flag is one."""
    return isinstance(number, (int, float)) and not isinstance(number, bool) and 0 < number <= 1
