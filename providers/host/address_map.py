"""What lies where, in the order of addresses."""

from __future__ import annotations

from bisect import bisect_left
from typing import Generic, TypeVar

T = TypeVar("T")


class AddressMap(Generic[T]):
    """Values by the address that each begins at.

    Not thread-safe: the owner locks.  A look-up is O(log n); adding and removing also moves up to
    n words of one array, which costs less than the driver call that goes with it.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._values: dict[int, T] = {}

    def __len__(self) -> int:
        return len(self._starts)

    def __contains__(self, start: int) -> bool:
        return start in self._values

    def items(self) -> list[tuple[int, T]]:
        """Return all, in order, with their addresses."""
        return [(start, self._values[start]) for start in self._starts]

    def get(self, start: int) -> T | None:
        """Return the value that begins at an address, None if none does."""
        return self._values.get(start)

    def put(self, start: int, value: T) -> None:
        """Enter a value, or put another one in its place."""
        if start not in self._values:
            self._starts.insert(bisect_left(self._starts, start), start)
        self._values[start] = value

    def pop(self, start: int) -> T:
        """Take out what begins at an address; KeyError if nothing does."""
        value = self._values.pop(start)
        del self._starts[bisect_left(self._starts, start)]
        return value

    def last_before(self, limit: int) -> tuple[int, T] | None:
        """Return the last that begins below `limit`, with its address."""
        at = bisect_left(self._starts, limit)
        if not at:
            return None
        start = self._starts[at - 1]
        return start, self._values[start]

    def between(self, first: int, limit: int) -> list[T]:
        """Return those that begin in ``[first, limit)``, in order."""
        low, high = bisect_left(self._starts, first), bisect_left(self._starts, limit)
        return [self._values[start] for start in self._starts[low:high]]
