"""Long random walks over small maps, every invariant checked after every step."""

from __future__ import annotations

import random

import pytest

from tests.fakes.provider import FakeProvider
from tests.property.shadow import Shadow
from umfpy.core.extents import ExtentMap

GRANULE = 512
STEPS = 25_000


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

    def add(self, size: int) -> None:
        base = self.provider.alloc(size)
        self.map.add(base, size, self.provider)
        self.shadow.extents[base] = size

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
            self.provider.free(extent.base, extent.size)
            del self.shadow.extents[extent.base]
            for granule in range(extent.base, extent.base + extent.size, GRANULE):
                self.shadow.last.pop(granule, None)
        elif len(self.shadow.extents) < 6:
            self.add(self.random.choice((1, 7, 40, 129)) * GRANULE)

    def step(self) -> None:
        self.random.choices(
            (self.allocate, self.free, self.split, self.merge, self.wait, self.come_and_go),
            (40, 38, 6, 6, 4, 2),
        )[0]()
        self.map.check("full")

    def end(self) -> None:
        """Free everything; then each extent can be had as one piece."""
        for start in list(self.shadow.live):
            self.map.free(start)
        self.map.retire()
        self.map.retired()
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

    # then
    walk.end()
