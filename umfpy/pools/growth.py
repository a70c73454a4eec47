"""How much a pool takes from its provider at a time."""

from __future__ import annotations

from dataclasses import dataclass

from umfpy.arguments import check_number
from umfpy.errors import InvalidArgument


@dataclass(frozen=True)
class Growth:
    """Extents grow with the pool: each is a fraction of what is held, between two bounds.

    Few large extents cost few driver calls, and fragment less, since no block crosses the end of
    one; small ones overshoot less when the demand stops growing.  A pool that has to grow gives
    its wholly free extents back first, none of which is large enough, and takes at least as much
    again in one piece.  A request larger than the step gets an extent of
    its own size, in whole minimum steps.

    Attributes
    ----------
    minimum, maximum
        Bounds of the step in bytes.
    divisor
        The step is what the pool holds, divided by this.
    """

    minimum: int = 2 << 20
    maximum: int = 256 << 20
    divisor: int = 16

    def __post_init__(self) -> None:
        take_numbers(self, "minimum", "maximum", "divisor")
        if not 0 < self.minimum <= self.maximum or self.divisor < 1:
            raise InvalidArgument(
                f"growth needs 0 < minimum <= maximum and a divisor of at least 1, not {self}"
            )

    def step(self, size: int, held: int, released: int, unit: int) -> int:
        """Return the bytes to ask for, for a request of `size` bytes that does not fit.

        `held` is what the pool had before it gave `released` of that back.
        """
        wanted = min(max(held // self.divisor, self.minimum), self.maximum)
        # Extents of whole minimum steps fit each other's holes when they come and go.
        return round_up(max(size, wanted, released), round_up(self.minimum, unit))


def take_numbers(policy: object, *names: str) -> None:
    """Make fields of a frozen policy plain whole numbers; InvalidArgument names what is none."""
    for name in names:
        object.__setattr__(policy, name, check_number(getattr(policy, name), name, least=None))


def round_up(size: int, unit: int) -> int:
    """Return the lowest multiple of `unit` that is at least `size`, and at least `unit`."""
    return max(-(-size // unit), 1) * unit
