"""Where a request could go, if memory were put behind some addresses."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import NamedTuple

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.growth import round_up

#: A window that needs more new memory than this part of the request is not worth it: it would
#: take up free memory that smaller requests fit into; unless memory is short.
WORTH_IT = 0.9


class Free(NamedTuple):
    """A free range of one state."""

    start: int
    size: int
    state: int

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.start + self.size


class Window(NamedTuple):
    """A free range that holds a request once every part of it can be used.

    ``missing`` are the parts that cannot be used yet, by address: hidden ones as a whole, and
    those without memory in whole units.  ``room`` is how many bytes without memory lie behind
    the last part, where more could be put.
    """

    start: int
    end: int
    missing: tuple[Free, ...]
    room: int

    @property
    def hidden(self) -> list[Free]:
        """The parts that have memory which nobody may use."""
        return [part for part in self.missing if part.state == HIDDEN]

    @property
    def without_memory(self) -> list[Free]:
        """The parts that have none."""
        return [part for part in self.missing if part.state == UNBACKED]

    @property
    def new_bytes(self) -> int:
        """How much memory it takes."""
        return sum(part.size for part in self.without_memory)


class Run:
    """Free ranges of one extent, by address, without a gap between them.

    ``unit`` is what memory comes in, in bytes.  What is asked of a run of many ranges costs
    O(log ranges).
    """

    def __init__(self, ranges: Sequence[Free], unit: int) -> None:
        self.ranges = ranges
        self.start = ranges[0].start
        self.end = ranges[-1].end
        self._unit = unit
        self._starts = [piece.start for piece in ranges]
        missing = (piece.size if piece.state == UNBACKED else 0 for piece in ranges)
        self._missing = [0, *accumulate(missing)]  # bytes without memory below each range

    def places(self, size: int, alignment: int) -> Iterator[int]:
        """Yield where a request could start, so that it makes use of what can be used already.

        With the lowest place of all, so that there is one if the request fits at all.
        """
        for piece in self.ranges:
            if piece.state == UNBACKED:
                continue
            start = round_up(piece.start, alignment)
            if start < piece.end and start + size <= self.end:
                yield start
            # Or with its end at the end of what can be used, and new memory below.
            start = (piece.end - size) // alignment * alignment
            if self.start <= start < piece.start:
                yield start
        start = round_up(self.start, alignment)
        if start + size <= self.end:
            yield start

    def new_bytes(self, start: int, end: int) -> int:
        """Return how much memory it takes to be able to use a part."""
        first, last = self._covered(start, end)
        below, above = self.ranges[first], self.ranges[last]
        size = self._missing[last + 1] - self._missing[first]
        if below.state == UNBACKED:
            size -= self._units(below, start, end).start - below.start
        if above.state == UNBACKED:
            size -= above.end - self._units(above, start, end).end
        return size

    def window(self, start: int, end: int) -> Window:
        """Return the window of a part, which is not empty."""
        first, last = self._covered(start, end)
        missing = []
        room = 0
        for piece in self.ranges[first : last + 1]:
            if piece.state == SAFE:
                continue
            part = piece if piece.state == HIDDEN else self._units(piece, start, end)
            missing.append(part)
            room = piece.end - part.end
        return Window(start, end, tuple(missing), room)

    def afresh(self, size: int, alignment: int) -> Window | None:
        """Return a window at the beginning of the largest range without memory, if it fits."""
        holes = (piece for piece in self.ranges if piece.state == UNBACKED)
        hole = max(holes, key=attrgetter("size"), default=None)
        if hole is None:
            return None
        start = round_up(hole.start, alignment)
        return self.window(start, start + size) if start + size <= hole.end else None

    def _covered(self, start: int, end: int) -> tuple[int, int]:
        """Return the places of the first and the last range that a part has to do with."""
        return bisect_right(self._starts, start) - 1, bisect_left(self._starts, end) - 1

    def _units(self, piece: Free, start: int, end: int) -> Free:
        """Return the whole units of a range without memory that a part needs."""
        low = piece.start + max(start - piece.start, 0) // self._unit * self._unit
        high = min(piece.start + round_up(end - piece.start, self._unit), piece.end)
        return Free(low, high - low, piece.state)


def choose(
    free: Iterable[Free],
    size: int,
    alignment: int,
    unit: int,
    edges: Collection[int] = (),
    *,
    scarce: bool = False,
) -> Window | None:
    """Return the window for a request that takes the least new memory; None if there is none.

    Parameters
    ----------
    free
        Ranges in the states SAFE, HIDDEN and UNBACKED; those of the latter are whole units.
    size, alignment
        The request, in bytes; an alignment of 0 or 1 is none.
    unit
        What memory comes in, in bytes.
    edges
        Where extents begin: no window reaches across.
    scarce
        Whether new memory is short, so that a window is worth it however little that saves.
    """
    alignment = max(alignment, 1)
    runs = [run for run in _runs(sorted(free), unit, edges) if run.end - run.start >= size]
    places = (
        (run.new_bytes(start, start + size), run, start)
        for run in runs
        for start in run.places(size, alignment)
    )
    best = min(places, key=itemgetter(0), default=None)
    if best is None:
        return None
    new, run, start = best
    if not scarce and new > size * WORTH_IT:
        fresh = [window for run in runs if (window := run.afresh(size, alignment))]
        if fresh:
            return max(fresh, key=attrgetter("room"))
    return run.window(start, start + size)


def behind(
    free: Iterable[Free], at: int, size: int, unit: int, edges: Collection[int] = ()
) -> Window | None:
    """Return the window of `size` bytes from an address on; None if not all of it is free.

    What lies before it and can be used belongs to it, so that nobody takes that memory away.
    An extent that begins at the address is another one.  See `choose`.
    """
    end = at + size
    for run in _runs(sorted(free), unit, edges):
        if run.start <= at and end <= run.end:
            window = run.window(at, end)
            before = [piece for piece in run.ranges if piece.end == at and piece.state == SAFE]
            return window._replace(start=before[0].start) if before else window
    return None


def _runs(free: Sequence[Free], unit: int, edges: Collection[int]) -> Iterator[Run]:
    """Group ranges, by address, into those without a gap, each in one extent."""
    ranges = list(free[:1])
    for before, after in pairwise(free):
        if after.start != before.end or after.start in edges:
            yield Run(ranges, unit)
            ranges = []
        ranges.append(after)
    if ranges:
        yield Run(ranges, unit)
