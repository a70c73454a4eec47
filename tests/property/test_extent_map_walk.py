"""Long random walks over small maps, every invariant checked after every step."""

from __future__ import annotations

import random

import pytest

from tests.fakes.provider import FakeProvider
from tests.property.shadow import Shadow
from umfpy.core.extents import COMING, HIDDEN, LEAVING, SAFE, UNBACKED, ExtentMap

GRANULE = 512
STEPS = 25_000
STATES = (SAFE, HIDDEN, UNBACKED, LEAVING, COMING)


class Walk:
    """One map, its shadow, and a source of chance."""

    def __init__(self, seed: int, *, streams: int, scan: int) -> None:
        self.random = random.Random(seed)
        self.provider = FakeProvider(granule=GRANULE)
        self.streams = streams
        self.map = ExtentMap(GRANULE, self.provider, ordered=streams > 1, scan=scan)
        self.shadow = Shadow(GRANULE, ordered=streams > 1)
        self.retiring: set[int] | None = None
        for granules in (1, 40, 64, 129):
            self.add(granules * GRANULE)

    def add(self, size: int, *, backed: bool = True) -> None:
        base = self.provider.alloc(size)
        self.map.add(base, size, self.provider, backed=backed, fresh=self.random.random() < 0.5)
        self.shadow.added(base, size, backed=backed)

    def allocate(self) -> None:
        size = self.random.choice((0, 1, 511, 512, 513, self.random.randrange(20 * GRANULE)))
        alignment = self.random.choice((0, 0, 0, 1, 256, 1024, 4096, 32768))
        stream = self.random.randrange(self.streams)
        start = self.map.allocate(size, alignment, stream)
        if start is None:
            # Free neighbours of different streams, or being waited for, do not count as one.
            assert not self.shadow.holds_free(size, alignment, stream) or self.streams > 1
        else:
            self.shadow.allocated(start, size, alignment, stream)

    def free(self) -> None:
        if self.shadow.live:
            piece = self.random.choice(list(self.shadow.live.values()))
            stream = self.random.choice((None, self.random.randrange(self.streams)))
            self.map.free(piece.start, self.random.choice((None, piece.size)), stream)
            self.shadow.freed(piece.start, piece.stream if stream is None else stream)

    def split(self) -> None:
        pieces = [piece for piece in self.shadow.live.values() if piece.size > GRANULE]
        if pieces:
            piece = self.random.choice(pieces)
            first = self.random.randrange(1, -(-piece.size // GRANULE)) * GRANULE
            self.map.split(piece.start, piece.size, first)
            self.shadow.split(piece.start, first)

    def merge(self) -> None:
        live = self.shadow.live
        pairs = [
            (low, live[low.end])
            for low in live.values()
            if low.end in live
            and low.stream == live[low.end].stream
            and low.end not in self.shadow.extents
        ]
        if pairs:
            low, high = self.random.choice(pairs)
            self.map.merge(low.start, high.start, low.span + high.size)
            self.shadow.merged(low.start, high.start)

    def wait(self) -> None:
        if self.retiring is None:
            self.map.retire()
            self.retiring = set(self.shadow.last)
        else:
            self.map.retired()
            # What was used and freed again meanwhile is not in it: it cannot have been used.
            self.shadow.waited(self.retiring)
            self.retiring = None

    def come_and_go(self) -> None:
        free = self.map.free_extents()
        if free and self.random.random() < 0.7:
            extent = self.random.choice(free)
            assert self.map.remove(extent)
            assert extent.backed == (self.shadow.apart.get(extent.base) != UNBACKED)
            if self.random.random() < 0.3:
                self.map.restore(extent)
                self.shadow.restored(extent.base)
            else:
                self.provider.free(extent.base, extent.size)
                self.shadow.removed(extent.base)
        elif len(self.shadow.extents) < 6:
            size = self.random.choice((1, 7, 40, 129)) * GRANULE
            self.add(size, backed=self.random.random() < 0.5)

    def retag(self) -> None:
        """Mostly a part of a free block, mostly towards SAFE; else any place."""
        old, new = self.random.sample(STATES, 2)
        if self.random.random() < 0.5:
            old, new = self.random.choice(STATES[1:]), SAFE
        ranges = self.map.free_ranges(old)
        if not ranges or self.random.random() < 0.2:
            ranges = list(self.shadow.extents.items())
        start, size = self.random.choice(ranges)
        first = self.random.randrange(size // GRANULE) * GRANULE
        count = self.random.randint(1, size // GRANULE)
        start, size = start + first, count * GRANULE
        known = self.shadow.is_free(start, size, old)
        moved = self.map.retag(start, size, old, new)
        # What a stream may still be using is free, but not everybody's.
        assert moved == known or (self.streams > 1 and old == SAFE and known)
        if moved:
            self.shadow.retagged(start, size, new)

    def step(self) -> None:
        self.random.choices(
            (
                self.allocate,
                self.free,
                self.split,
                self.merge,
                self.wait,
                self.come_and_go,
                self.retag,
            ),
            (40, 38, 6, 6, 4, 2, 6),
        )[0]()
        self.map.check("full")

    def end(self) -> None:
        """Free everything; then each extent can be had as one piece."""
        for start in list(self.shadow.live):
            self.map.free(start)
        self.map.retire()
        self.map.retired()
        for state in STATES[1:]:
            for start, size in self.map.free_ranges(state):
                assert self.map.retag(start, size, state, SAFE)
        self.map.check("full")
        sizes = sorted(self.shadow.extents.values(), reverse=True)
        for size in sizes:
            assert self.map.allocate(size) is not None, "everything merged"
        assert self.map.counters()["used"] == sum(sizes)
        self.map.check("full")


@pytest.mark.parametrize("scan", [0, 1, 8, 0xFFFFFFFF])
@pytest.mark.parametrize("streams", [1, 3])
def test_every_invariant_holds_after_every_step(streams: int, scan: int) -> None:
    # given
    walk = Walk(seed=streams * 100 + scan, streams=streams, scan=scan)

    # when
    for step in range(STEPS):
        walk.step()
        if step % 50 == 0:
            counters = walk.map.counters()
            assert (counters["used"], counters["requested"]) == (
                walk.shadow.used,
                walk.shadow.requested,
            )
            assert (counters["unbacked"], counters["hidden"]) == (
                walk.shadow.unbacked,
                walk.shadow.hidden,
            )
            total = sum(walk.shadow.extents.values())
            assert counters["reserved"] + counters["unbacked"] == total

    # then
    walk.end()
