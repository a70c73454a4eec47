"""Which parts of the addresses have a property."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

#: First address, and the one behind the last.
Range = tuple[int, int]


class RangeSet:
    """Disjoint ranges of addresses, neighbours joined.

    Not thread-safe: the owner locks.  Each call is O(log of the ranges), plus those it touches.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, start: int, end: int) -> None:
        """Enter a range, some of which may be in already."""
        low, high = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if low < high:
            start, end = min(start, self._starts[low]), max(end, self._ends[high - 1])
        self._replace(low, high, [(start, end)])

    def discard(self, start: int, end: int) -> list[Range]:
        """Take a range out, and return the parts of it that were in."""
        found = self.within(start, end)
        if found:
            low, high = self._touched(start, end)
            edges = (self._starts[low], start), (end, self._ends[high - 1])
            self._replace(low, high, [(first, last) for first, last in edges if first < last])
        return found

    def within(self, start: int, end: int) -> list[Range]:
        """Return the parts of a range that are in, in order."""
        low, high = self._touched(start, end)
        pairs = zip(self._starts[low:high], self._ends[low:high], strict=True)
        return [(max(first, start), min(last, end)) for first, last in pairs]

    def without(self, start: int, end: int) -> list[Range]:
        """Return the parts of a range that are not in, in order."""
        found = []
        for first, last in (*self.within(start, end), (end, end)):
            if start < first:
                found.append((start, first))
            start = last
        return found

    def covered(self, start: int, end: int) -> int:
        """Return how much of a range is in."""
        return sum(last - first for first, last in self.within(start, end))

    def _touched(self, start: int, end: int) -> tuple[int, int]:
        """Return which ranges have something in common with this one: from, up to."""
        low, high = bisect_right(self._ends, start), bisect_left(self._starts, end)
        return low, max(low, high)

    def _replace(self, low: int, high: int, ranges: list[Range]) -> None:
        self._starts[low:high] = [first for first, _ in ranges]
        self._ends[low:high] = [last for _, last in ranges]
