"""Free ranges of a file or of a buffer."""

from __future__ import annotations

from bisect import bisect_left


class FreeRanges:
    """Disjoint free ranges on a line, neighbours joined; the lowest that fits is used first.

    Not thread-safe: the owner locks.  Both operations are linear in the number of ranges, which
    stays small, because a provider's pieces are coarse.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Make ``[start, end)`` free; it must not be free already."""
        at = bisect_left(self._starts, start)
        joins_low = at > 0 and self._ends[at - 1] == start
        joins_high = at < len(self._starts) and self._starts[at] == end
        if joins_low and joins_high:
            self._ends[at - 1] = self._ends.pop(at)
            del self._starts[at]
        elif joins_low:
            self._ends[at - 1] = end
        elif joins_high:
            self._starts[at] = start
        else:
            self._starts.insert(at, start)
            self._ends.insert(at, end)

    def take(self, size: int, alignment: int = 1) -> int | None:
        """Return the start of `size` free units aligned to `alignment`, or None."""
        for at, (start, end) in enumerate(zip(self._starts, self._ends, strict=True)):
            first = (start + alignment - 1) & -alignment
            if first + size <= end:
                self._cut(at, first, first + size)
                return first
        return None

    def take_last(self, end: int) -> int:
        """Take the range that reaches up to `end`; return its start, or `end` if there is none."""
        if self._ends and self._ends[-1] == end:
            self._ends.pop()
            return self._starts.pop()
        return end

    @property
    def total(self) -> int:
        """All free units."""
        return sum(self._ends) - sum(self._starts)

    @property
    def largest(self) -> int:
        """The units of the largest range."""
        pairs = zip(self._starts, self._ends, strict=True)
        return max((end - start for start, end in pairs), default=0)

    def _cut(self, at: int, first: int, last: int) -> None:
        start, end = self._starts[at], self._ends[at]
        rest = [(a, b) for a, b in ((start, first), (last, end)) if a < b]
        self._starts[at : at + 1] = [a for a, _ in rest]
        self._ends[at : at + 1] = [b for _, b in rest]
