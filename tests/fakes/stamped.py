"""Allocations that know what they should hold, byte for byte at many places."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tests.fakes.ladders import pattern, read, write
from umfpy import Allocation, Provider
from umfpy.pools.base import ProviderPool

#: Every chunk of a device has several stamps, wherever it begins.
STRIDE = 512 << 10
STAMP = 64

#: Bytes behind an allocation that it may grow into.
ROOM = 256 << 20


class Stamped:
    """Live allocations of a pool, stamped at their ends and all the way between.

    No two stamps are alike, so that memory which comes from elsewhere is found out.
    """

    def __init__(self, pool: ProviderPool, source: Provider | None = None) -> None:
        self.pool = pool
        self.source = source or pool.provider
        self.live: dict[Allocation, int] = {}  #: with a number of its own
        self._numbers = itertools.count(1)

    def allocate(self, *arguments: object, **options: object) -> Allocation:
        """Allocate from the pool, and stamp what came."""
        return self.enter(self.pool.allocate(*arguments, **options))

    def enter(self, allocation: Allocation) -> Allocation:
        """Stamp an allocation that was just made, and keep it."""
        self.live[allocation] = next(self._numbers)
        self.stamp(allocation)
        return allocation

    def free(self, *allocations: Allocation) -> None:
        """Free what has every stamp still."""
        for allocation in allocations:
            self.check_one(allocation)
            del self.live[allocation]
            allocation.free()

    def resize(self, allocation: Allocation, size: int) -> bool:
        """Resize in place; what it held is there still, whatever the answer."""
        old, at = allocation.size, allocation.ptr
        done = allocation.resize(size)
        assert allocation.ptr == at
        assert allocation.size == (size if done else old)
        self._look(allocation, old)
        self.stamp(allocation)
        return done

    def check(self) -> None:
        """Look at every stamp, and at the pool."""
        self.pool.check("full")
        for allocation in self.live:
            self.check_one(allocation)

    def check_one(self, allocation: Allocation) -> None:
        """Look at the stamps of one allocation."""
        self._look(allocation, allocation.size)

    def stamp(self, allocation: Allocation) -> None:
        """Write the stamps of an allocation."""
        for at, size in _places(allocation.size):
            write(self.source, allocation.ptr + at, self._bytes(allocation, at, size))

    def clear(self) -> None:
        """Free everything, in the order in which it came."""
        self.free(*list(self.live))

    def _look(self, allocation: Allocation, stamped: int) -> None:
        """Look at what is left of the stamps that were made in so many bytes."""
        for at, size in _places(stamped):
            if at + size <= allocation.size:
                seen = read(self.source, allocation.ptr + at, size)
                assert seen == self._bytes(allocation, at, size), f"{allocation!r} at {at}"

    def _bytes(self, allocation: Allocation, at: int, size: int) -> bytes:
        return pattern(allocation.ptr + at + (self.live[allocation] << 64), size)


def elsewhere(*allocations: Allocation) -> int:
    """Return an alignment that no address from the first of these to behind the last has.

    What is allocated with it has other addresses, wherever the system put these; they may be
    free again.
    """
    low = min(one.ptr for one in allocations)
    high = max(one.ptr + one.size for one in allocations) + ROOM
    alignment = 1 << 21
    while -(-low // alignment) * alignment < high:
        alignment *= 2
    return alignment


def _places(size: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, bytes) of the stamps in so many bytes."""
    for at in range(0, size, STRIDE):
        yield at, min(STAMP, size - at)
    if size % STRIDE > 2 * STAMP:
        yield size - STAMP, STAMP
