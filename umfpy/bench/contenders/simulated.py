"""Memory that is only addresses: pools over it are measured without any driver's cost."""

from __future__ import annotations

import itertools

from umfpy.provider import Capability, Provider

#: Pools that live at once must not share addresses; 64 TiB lasts each for a whole run.
_ranges = itertools.count(1 << 46, 1 << 46)
#: What the CUDA driver allocates in, and so what umfpy grows by multiples of.
GRANULARITY = 2 << 20


class SimulatedProvider(Provider):
    """Hands out addresses upwards, and never one twice; nobody may touch them.

    It claims streams, as a GPU does, so that the pool's ordering takes its part of the time.
    """

    name = "simulated"
    capabilities = Capability.STREAMS
    device = 0

    def __init__(self) -> None:
        self._next = fresh_range()

    def alloc(self, size: int, alignment: int = 0) -> int:
        unit = max(alignment, GRANULARITY)
        start = -(-self._next // unit) * unit
        self._next = start + size
        return start

    def free(self, ptr: int, size: int) -> None:
        """Addresses are never used again, so that there is nothing to note."""

    def granularity(self, size: int = 0) -> int:
        return GRANULARITY

    def synchronize(self) -> None:
        """No work is ever queued."""


def fresh_range() -> int:
    """Return where a simulated memory of its own begins."""
    return next(_ranges)
