"""Which sleeping memory serves a request once it is awake."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.manager.asleep import ASLEEP
from umfpy.pools.departure import bounds
from umfpy.pools.growth import round_up
from umfpy.pools.window import Free, choose

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap

#: Free ranges below this part of a unit are not put together: to make use of them saves little.
_LEAST_PART = 8

#: No range has as many bytes.
_MOST = 1 << 64


class Choice(NamedTuple):
    """What has to wake for a request.

    ``parts`` are the ranges; ``out_of`` is the range that sleeps which the only part belongs to,
    None for parts of several.
    """

    parts: Sequence[Free]
    out_of: Free | None = None


class Sleepers:
    """What sleeps of one pool, by size.

    It is read off the extent map when it is asked for first, and kept: memory goes down and comes
    back under the pool's growth lock alone, which callers hold, and whoever has it do so says it
    here.  So it costs O(log ranges) to choose one, but after `forget` O(ranges).
    """

    def __init__(self, space: ExtentMap) -> None:
        self._map = space
        self._by_state: dict[int, list[tuple[int, int]]] = {}  # (bytes, start), ascending

    def forget(self) -> None:
        """Read the map again: memory went down, or what sleeps went back."""
        self._by_state.clear()

    def woke(self, choice: Choice) -> None:
        """Note that a choice is awake."""
        whole = choice.out_of
        if whole is None:
            self.forget()
            return
        ranges = self._by_state.get(whole.state)
        if ranges is None:  # forgotten meanwhile: what is read next is right
            return
        (part,) = choice.parts
        del ranges[bisect_left(ranges, (whole.size, whole.start))]
        for start, end in ((whole.start, part.start), (part.end, whole.end)):
            if start < end:
                insort(ranges, (end - start, start))

    def ranges(self, state: int, least: int, most: int = _MOST) -> Iterator[Free]:
        """Yield the ranges of a state that have so many bytes, the smallest first."""
        ranges = self._ranges(state)
        for place in range(bisect_left(ranges, (least, 0)), len(ranges)):
            size, start = ranges[place]
            if size > most:
                return
            yield Free(start, size, state)

    def _ranges(self, state: int) -> list[tuple[int, int]]:
        if state not in self._by_state:
            self._by_state[state] = sorted(
                (size, start) for start, size in self._map.free_ranges(state)
            )
        return self._by_state[state]


def choose_part(sleepers: Sleepers, size: int, alignment: int, unit: int) -> Choice | None:
    """Choose the smallest range that holds a request, of which whole units wake.

    Hidden memory comes first, and all of a range: it takes no new one.
    """
    for state in ASLEEP:
        for whole in sleepers.ranges(state, size):
            start = round_up(whole.start, max(alignment, 1))
            if start + size <= whole.end:
                part = whole if state == HIDDEN else _units(whole, start, start + size, unit)
                return Choice((part,), whole)
    return None


def _units(whole: Free, start: int, end: int, unit: int) -> Free:
    low = whole.start + (start - whole.start) // unit * unit
    high = min(whole.start + round_up(end - whole.start, unit), whole.end)
    return Free(low, high - low, whole.state)


def choose_window(space: ExtentMap, size: int, alignment: int, unit: int) -> Choice | None:
    """Choose neighbours that hold a request together, some of them ready: the least new memory.

    O(free blocks that are not small beside a unit).
    """
    least = max(unit // _LEAST_PART, 1)
    free = [
        (start, size, state)
        for state in (SAFE, HIDDEN, UNBACKED)
        for start, size in space.free_ranges(state, least)
    ]
    edges = {bounds(page)[0] for page in list(space.extents.values())}
    window = choose(_touching(free, size, edges), size, alignment, unit, edges)
    return None if window is None or not window.missing else Choice(window.missing)


def _touching(
    free: Iterable[tuple[int, int, int]], size: int, edges: Collection[int]
) -> Iterator[Free]:
    """Yield the ranges that have neighbours in their page, where together they have the bytes."""
    run: list[tuple[int, int, int]] = []
    end = 0
    for piece in [*sorted(free), (1 << 64, 0, SAFE)]:
        if piece[0] != end or piece[0] in edges:
            if len(run) > 1 and end - run[0][0] >= size:
                yield from map(Free._make, run)
            run = []
        run.append(piece)
        end = piece[0] + piece[1]
