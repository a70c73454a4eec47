"""How much a pool takes from its provider at a time."""

from __future__ import annotations

from dataclasses import dataclass

from umfpy.errors import InvalidArgument


@dataclass(frozen=True)
class Growth:
    """Extents grow with the pool: each is a fraction of what is held, between two bounds.

    Few large extents cost few driver calls and lose little at their ends; many small ones waste
    less when the demand stops growing.  A request larger than the step gets an extent of its own
    size, in whole units of the provider.

    Attributes
    ----------
    minimum, maximum
        Bounds of the step in bytes.
    divisor
        The step is what the pool holds, divided by this.
    """

    minimum: int = 2 << 20
    maximum: int = 64 << 20
    divisor: int = 16

    def __post_init__(self) -> None:
        if not 0 < self.minimum <= self.maximum or self.divisor < 1:
            raise InvalidArgument(
                f"growth needs 0 < minimum <= maximum and a divisor of at least 1, not {self}"
            )

    def step(self, size: int, reserved: int, unit: int) -> int:
        """Return the bytes to ask for, for a request of `size` that does not fit."""
        wanted = min(max(reserved // self.divisor, self.minimum), self.maximum)
        return round_up(max(size, wanted), unit)


def round_up(size: int, unit: int) -> int:
    """Return the lowest multiple of `unit` that is at least `size`, and at least `unit`."""
    return max(-(-size // unit), 1) * unit
