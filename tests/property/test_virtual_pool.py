"""Pools over virtual memory in any order of calls, against what they may hold and must find."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from tests.fakes.ladders import read
from tests.fakes.stamped import Stamped
from tests.fakes.virtual import agree, least_held
from umfpy import (
    Allocation,
    CudaVmmProvider,
    DriverUnavailable,
    HostProvider,
    LevelZeroVmmProvider,
    OutOfMemoryError,
    Pool,
    Provider,
    VirtualGrowth,
)
from umfpy.pools.rungs import RUNGS
from umfpy.providers.emulated import emulate

KIB, MIB = 1 << 10, 1 << 20
MEMORY = 128 * MIB
STEPS = 600
WEIGHTS = (46, 30, 14, 4, 6)  # of allocate, free, resize, zeros and trim


class Shape(NamedTuple):
    """A provider, and how a pool over it grows."""

    make: Callable[[], Provider]
    driver: str | None = "cuda"
    growth: VirtualGrowth | None = None
    limit: int | None = None
    streams: int = 1
    every: int = 1  #: steps from one full check to the next


#: One chunk for each growth, whatever lies idle.
COARSE = VirtualGrowth(small_until=1 << 60, parts=1, scarce=1.0, left=1)

SHAPES = {
    "cuda": Shape(CudaVmmProvider),
    "cuda, steps": Shape(CudaVmmProvider, growth=VirtualGrowth(0, 16 * MIB)),
    "cuda, large chunks": Shape(CudaVmmProvider, growth=COARSE),
    "cuda, chunks of 8 MiB": Shape(lambda: CudaVmmProvider(chunk_size="8MiB")),
    "cuda, limit": Shape(CudaVmmProvider, limit=100 * MIB),
    "cuda, streams": Shape(CudaVmmProvider, streams=3),
    "level zero": Shape(LevelZeroVmmProvider, driver="level_zero", every=30),
    "host": Shape(HostProvider, driver=None, limit=MEMORY, every=10),
}


@pytest.fixture(params=SHAPES)
def walk(request: pytest.FixtureRequest) -> Iterator[Walk]:
    shape = SHAPES[request.param]
    try:
        emulated = emulate(shape.driver, memory=MEMORY) if shape.driver else None
    except DriverUnavailable as absent:
        pytest.skip(str(absent))
    provider = shape.make()
    made = Walk(provider, shape, seed=request.param)
    yield made
    made.end()
    assert provider.live_count() == 0
    provider.close()
    if emulated is not None:
        assert emulated.leaks() == {}


class Walk:
    """Makes calls by chance, and checks after each what must hold."""

    def __init__(self, provider: Provider, shape: Shape, seed: str) -> None:
        self.pool = Pool(provider, growth=shape.growth, limit_bytes=shape.limit, virtual=True)
        self.stamped = Stamped(self.pool)
        self.shape = shape
        self.chance = random.Random(seed)
        self.served = self.refused = self.grown = self.stuck = 0

    def run(self) -> None:
        kinds = [self.allocate, self.free, self.resize, self.zeros, self.trim]
        for index, step in enumerate(self.chance.choices(kinds, WEIGHTS, k=STEPS)):
            step()
            if index % self.shape.every == 0:
                agree(self.pool)
            if self.shape.limit is not None:
                assert self.pool.stats().reserved_bytes <= self.shape.limit
        self.stamped.check()

    def size(self) -> int:
        return self.chance.choice(
            (
                1,
                self.chance.randrange(2000),
                self.chance.randrange(MIB),
                2 * MIB,
                self.chance.randrange(8 * MIB),
                self.chance.randrange(40 * MIB),
            )
        )

    def stream(self) -> int:
        return self.chance.randrange(self.shape.streams)

    def allocate(self) -> None:
        size = self.size()
        alignment = self.chance.choice((0, 0, 0, 1, 512, 64 * KIB, 4 * MIB, 64 * MIB))
        before = self.live()
        try:
            self.stamped.allocate(size, alignment, self.stream())
        except OutOfMemoryError:
            self.refused += 1
            assert self.live() == before
            most = min(self.shape.limit or MEMORY, MEMORY)
            assert least_held(self.pool, size, alignment) > most, "there was memory"
            return
        self.served += 1

    def live(self) -> list[tuple[int, int]]:
        return [(start, span) for start, span, used, _ in self.pool.map.blocks() if used]

    def free(self) -> None:
        for _ in range(self.chance.choice((1, 1, 1, 2))):
            if self.stamped.live:
                self.stamped.free(self.pick())

    def pick(self) -> Allocation:
        return self.chance.choice(list(self.stamped.live))

    def resize(self) -> None:
        if not self.stamped.live:
            return
        one, size = self.pick(), self.size()
        old = one.size
        before = self.live()
        if self.stamped.resize(one, size):
            self.grown += size > old
            return
        self.stuck += 1
        assert size > old, "to shrink is always possible"
        assert self.live() == before

    def zeros(self) -> None:
        size = self.size()
        try:
            one = self.pool.allocate(size, zero=True)
        except OutOfMemoryError:
            return
        assert read(self.pool.provider, one.ptr, size) == bytes(size)
        if one.resize(more := size + self.chance.randrange(1, MIB), zero=True):
            assert read(self.pool.provider, one.ptr, more) == bytes(more)
        self.stamped.enter(one)

    def trim(self) -> None:
        rung, keep = self.chance.choice(RUNGS), self.chance.choice((0, 0, MIB, 50 * MIB))
        before = self.pool.stats()
        went = self.pool.trim(keep, rung=rung)
        now = self.pool.stats()
        assert now.used_bytes == before.used_bytes
        if went.rung in ("decommit", "free"):
            assert before.reserved_bytes - now.reserved_bytes == went
        assert now.reserved_bytes - now.hidden_bytes >= min(
            keep, before.reserved_bytes - before.hidden_bytes
        )

    def end(self) -> None:
        """Everything goes back, in one piece."""
        self.stamped.clear()
        agree(self.pool)
        self.pool.close()
        now = self.pool.stats()
        assert (now.extents, now.reserved_bytes, now.unbacked_bytes) == (0, 0, 0)


def test_any_order_of_calls(walk: Walk) -> None:
    walk.run()

    assert walk.served > STEPS // 4
    assert walk.refused > STEPS // 60
    assert walk.grown > 0
    assert walk.stuck > 0
