"""Where a request could go, if memory were put behind some addresses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.growth import round_up

#: A window that needs more new memory than this part of the request is not worth it: it would
#: take up free memory that smaller requests fit into.
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


def choose(free: Iterable[Free], size: int, alignment: int, unit: int) -> Window | None:
    """Return the window for a request that takes the least new memory; None if there is none.

    Parameters
    ----------
    free
        Ranges in the states SAFE, HIDDEN and UNBACKED; those of the latter begin and end at
        multiples of `unit`.
    size, alignment
        The request, in bytes; an alignment of 0 or 1 is none.
    unit
        What memory comes in, in bytes.
    """
    alignment = max(alignment, 1)
    best: Window | None = None
    fresh: Window | None = None
    for run in _runs(sorted(free)):
        if run[-1].end - run[0].start < size:
            continue
        for window in _in_run(run, size, alignment, unit):
            if best is None or window.new_bytes < best.new_bytes:
                best = window
        fresh = _roomier(fresh, _afresh(run, size, alignment, unit))
    if best is not None and (fresh is None or best.new_bytes <= size * WORTH_IT):
        return best
    return fresh


def behind(free: Iterable[Free], at: int, size: int, unit: int) -> Window | None:
    """Return the window of `size` bytes from an address on; None if not all of it is free.

    What lies before it and can be used belongs to it, so that nobody takes that memory away.
    """
    run: list[Free] = []
    start = end = at
    for piece in sorted(free):
        if piece.end == at and piece.state == SAFE:
            start = piece.start
        if piece.start == end:
            run.append(piece)
            end = piece.end
    return _window(run, at, at + size, unit)._replace(start=start) if end - at >= size else None


def _runs(free: Sequence[Free]) -> Iterator[list[Free]]:
    """Group ranges, by address, into those without a gap."""
    run = list(free[:1])
    for before, after in pairwise(free):
        if after.start != before.end:
            yield run
            run = []
        run.append(after)
    if run:
        yield run


def _in_run(run: list[Free], size: int, alignment: int, unit: int) -> Iterator[Window]:
    """Yield windows that make use of what can be used already."""
    for index, piece in enumerate(run):
        if piece.state == UNBACKED:
            continue
        start = round_up(piece.start, alignment)
        if start < piece.end and start + size <= run[-1].end:
            yield _window(run[index:], start, start + size, unit)
        # Or with its end at the end of what can be used, and new memory below.
        start = (piece.end - size) // alignment * alignment
        if run[0].start <= start < piece.start:
            yield _window(run[: index + 1], start, start + size, unit)


def _afresh(run: list[Free], size: int, alignment: int, unit: int) -> Window | None:
    """Return a window at the beginning of the run's largest part without memory."""
    holes = [piece for piece in run if piece.state == UNBACKED]
    if not holes:
        return None
    hole = max(holes, key=lambda piece: piece.size)
    start = round_up(hole.start, max(alignment, unit))
    if start + size > hole.end:
        return None
    return _window([hole], start, start + size, unit)


def _roomier(one: Window | None, other: Window | None) -> Window | None:
    if one is None or other is None:
        return one or other
    return one if one.room >= other.room else other


def _window(pieces: Iterable[Free], start: int, end: int, unit: int) -> Window:
    missing = []
    room = 0
    for piece in pieces:
        if piece.state == SAFE or piece.end <= start or piece.start >= end:
            continue
        part = piece if piece.state == HIDDEN else _units(piece, start, end, unit)
        missing.append(part)
        room = piece.end - part.end
    return Window(start, end, tuple(missing), room)


def _units(piece: Free, start: int, end: int, unit: int) -> Free:
    """Return the whole units of a range without memory that a window needs."""
    low = piece.start + max(start - piece.start, 0) // unit * unit
    high = min(piece.start + round_up(end - piece.start, unit), piece.end)
    return Free(low, high - low, piece.state)
