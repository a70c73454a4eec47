"""Three million steps over small maps, every invariant checked after each.

`test_million_pool.py` adds half a million over pools.
"""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.property.cells import GRANULE, STATES, CellProvider
from tests.property.choices import Choice, choices
from umfpy.core.extents import COMING, HIDDEN, LEAVING, SAFE, UNBACKED, ExtentMap

STEPS = 400_000
KINDS = ("allocate", "free", "split", "merge", "wait", "come and go", "retag")
#: How often each comes, in a hundred.
WEIGHTS = (44, 38, 5, 5, 3, 1, 4)
EXTENTS = (1, 5, 16, 32)


class Walk:
    """One map, and what is live in it: {start: (size, granules, stream)}, and a list to pick from.

    Streams count from 1 in the shadow; with one stream alone there is no order to keep.
    """

    def __init__(self, *, streams: int, scan: int) -> None:
        self.ordered = streams > 1
        self.provider = CellProvider(ordered=self.ordered)
        self.cells = self.provider.cells
        self.map = ExtentMap(GRANULE, self.provider, ordered=self.ordered, scan=scan)
        self.live: dict[int, tuple[int, int, int]] = {}
        self.starts: list[int] = []
        self.retiring = False
        self.steps = 0
        for granules in EXTENTS:
            self.add(granules)

    def add(self, granules: int, *, backed: bool = True) -> None:
        size = granules * GRANULE
        base = self.provider.alloc(size)
        self.map.add(base, size, self.provider, backed=backed, fresh=not granules & 1)
        if not backed:
            self.cells.retag(base, size, UNBACKED)

    def enter(self, start: int, size: int, granules: int, stream: int) -> None:
        if start not in self.live:
            self.starts.append(start)
        self.live[start] = (size, granules, stream)

    def choose(self, pick: int) -> int:
        return self.starts[pick % len(self.starts)] if self.starts else 0

    def leave(self, start: int) -> None:
        # The last takes its place: the list is in no order.
        place = self.starts.index(start)
        self.starts[place] = self.starts[-1]
        self.starts.pop()
        del self.live[start]

    def allocate(self, choice: Choice) -> None:
        start = self.map.allocate(choice.size, choice.alignment, choice.stream)
        if start is None:
            # Free neighbours of several streams, or on no aligned address, are no room.
            if not self.ordered and choice.alignment <= GRANULE:
                assert not self.cells.has_room(choice.size, self.provider.live)
            return
        assert not start & (choice.alignment - 1 if choice.alignment else 0), "aligned"
        granules = -(-choice.size // GRANULE) or 1
        self.cells.take(start, granules * GRANULE, choice.stream + 1 if self.ordered else 0)
        self.enter(start, choice.size, granules, choice.stream)

    def free(self, choice: Choice) -> None:
        start = self.choose(choice.pick)
        if start:
            size, granules, _ = self.live[start]
            self.map.free(start, size, choice.stream)
            self.cells.give(start, granules * GRANULE, choice.stream + 1 if self.ordered else 0)
            self.leave(start)

    def split(self, choice: Choice) -> None:
        start = self.choose(choice.pick)
        size, granules, stream = self.live.get(start, (0, 0, 0))
        if size > GRANULE:
            # Some part of the size is left: the last granules may hold none of it.
            lower = 1 + choice.pick % ((size - 1) // GRANULE)
            first = lower * GRANULE
            self.map.split(start, size, first)
            self.enter(start, first, lower, stream)
            self.enter(start + first, size - first, granules - lower, stream)

    def merge(self, choice: Choice) -> None:
        low = self.choose(choice.pick)
        if not low:
            return
        _, granules, stream = self.live[low]
        high = low + granules * GRANULE
        if self.live.get(high, (0, 0, None))[2] != stream or high in self.provider.live:
            return
        size = high - low + self.live[high][0]
        granules += self.live[high][1]
        self.map.merge(low, high, size)
        self.leave(high)
        self.enter(low, size, granules, stream)

    def wait(self, choice: Choice) -> None:
        if not self.retiring:
            self.map.retire()
            self.cells.retire()
        else:
            self.map.retired()
            self.cells.retired()
        self.retiring = not self.retiring

    def come_and_go(self, choice: Choice) -> None:
        free = self.map.free_extents()
        if free and choice.pick & 1:
            extent = free[choice.pick % len(free)]
            assert self.map.remove(extent)
            self.cells.waited()  # as a pool does before an extent goes
            self.map.retire()
            self.map.retired()
            self.retiring = False
            if choice.pick & 2:
                self.map.restore(extent)  # as a pool does when a provider fails
            else:
                self.provider.free(extent.base, extent.size)
        elif len(self.map.extents) < 5:
            self.add(EXTENTS[choice.pick % len(EXTENTS)], backed=bool(choice.pick & 4))

    def retag(self, choice: Choice) -> None:
        """Mostly a part of a free block of that state; else any place in any extent."""
        old, new = self.pair(choice.pick)
        ranges = self.map.free_ranges(old)
        if not ranges or choice.pick % 5 == 0:
            ranges = sorted(self.provider.live.items())
        start, size = ranges[choice.pick % len(ranges)]
        first = choice.size // GRANULE % (size // GRANULE)
        count = 1 + choice.pick // 7 % (size // GRANULE - first)
        start, size = start + first * GRANULE, count * GRANULE
        known = self.cells.is_free(start, size, old)
        moved = self.map.retag(start, size, old, new)
        # What a stream may still be using is free, but not everybody's.
        assert moved == known or (self.ordered and old == SAFE and known)
        if moved:
            self.cells.retag(start, size, new)

    @staticmethod
    def pair(pick: int) -> tuple[int, int]:
        """Two states, mostly on the way back to SAFE, so that memory does not run out."""
        states = list(STATES)
        new = SAFE if pick % 3 else states[pick // 3 % len(states)]
        return [state for state in states if state != new][pick // 16 % (len(states) - 1)], new

    def run(self, steps: int, made: list[Choice]) -> None:
        calls = dict(
            zip(
                KINDS,
                (
                    self.allocate,
                    self.free,
                    self.split,
                    self.merge,
                    self.wait,
                    self.come_and_go,
                    self.retag,
                ),
                strict=True,
            )
        )
        check = self.map.check
        for choice in cycle(made):
            calls[choice.kind](choice)
            check("full")
            self.steps += 1
            if self.steps == steps:
                return
            if self.steps % 1000 == 0:
                self.count()

    def count(self) -> None:
        counters = self.map.counters()
        assert counters["used"] == self.cells.used * GRANULE
        assert counters["requested"] == sum(size for size, _, _ in self.live.values())
        assert counters["allocations"] - counters["frees"] == len(self.live)
        assert counters["hidden"] == self.cells.bytes_in(HIDDEN)
        assert counters["unbacked"] == self.cells.bytes_in(UNBACKED, COMING)
        assert counters["reserved"] == counters["used"] + self.cells.bytes_in(SAFE, HIDDEN, LEAVING)

    def end(self) -> None:
        """Free everything; then each extent can be had as one piece."""
        self.count()
        for start in list(self.live):
            self.map.free(start)
        self.map.retire()
        self.map.retired()
        for state in (HIDDEN, UNBACKED, LEAVING, COMING):
            for start, size in self.map.free_ranges(state):
                assert self.map.retag(start, size, state, SAFE)
        self.map.check("full")
        assert len(self.map.free_extents()) == len(self.map.extents), "everything merged"


SCANS = (0, 1, 8, 0xFFFFFFFF)
STREAMS = (1, 3)


def test_these_are_millions_of_steps() -> None:
    assert STEPS * len(SCANS) * len(STREAMS) >= 3_000_000


@pytest.mark.parametrize("scan", SCANS)
@pytest.mark.parametrize("streams", STREAMS)
def test_a_map_keeps_every_invariant(streams: int, scan: int) -> None:
    walk = Walk(streams=streams, scan=scan)
    made = choices(streams * 10 + scan % 7, streams, KINDS, WEIGHTS, largest=8 * GRANULE)
    walk.run(STEPS, made)
    assert walk.steps == STEPS
    walk.end()
