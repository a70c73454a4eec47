"""Real memory that goes down and comes back: live slices keep every byte, and zeros are zeros."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fakes.ladders import provider_of, read, write
from tests.manager.ladder import SHAPES, pattern
from tests.manager.support import KIB, MIB
from umfpy import Allocation, MemoryManager, Provider
from umfpy.pools.rungs import RUNGS

STEPS = 250
SIZES = (0, 1, 700, 5 * KIB, 70 * KIB, 300 * KIB, 3 * MIB, 6 * MIB)


class Walk:
    """Slices that are filled as soon as they are there, and looked at when they go."""

    def __init__(self, manager: MemoryManager, provider: Provider, seed: int) -> None:
        self.manager, self.provider = manager, provider
        self.random = random.Random(seed)
        self.live: list[tuple[Allocation, bytes]] = []
        self.woken = 0

    def take(self) -> None:
        size, zero = self.random.choice(SIZES), self.random.random() < 0.5
        asleep = self.asleep()
        made = self.manager.allocate(size, self.random.choice((0, 0, 64 * KIB)), zero=zero)
        self.woken += self.asleep() < asleep
        if zero:
            assert read(self.provider, made.ptr, size) == bytes(size)
        data = pattern(made.id, size)
        write(self.provider, made.ptr, data)
        self.live.append((made, data))

    def asleep(self) -> int:
        usage = self.manager.memory_usage()
        return usage.bytes_hidden + usage.bytes_unbacked

    def drop(self) -> None:
        if self.live:
            gone, data = self.live.pop(self.random.randrange(len(self.live)))
            assert read(self.provider, gone.ptr, gone.size) == data
            gone.free()

    def trim(self) -> None:
        keep = self.random.choice((0, 0, 16 * MIB))
        self.manager.trim(keep, rung=self.random.choice(RUNGS[:-1]))

    def run(self) -> None:
        for _ in range(STEPS):
            steps = (self.take, self.drop, self.trim, self.manager.cleanup)
            self.random.choices(steps, (40, 45, 10, 5))[0]()
        self.manager.check("full")
        while self.live:
            self.drop()


# Slices at multiples of an odd number have no alignment beyond it.
@pytest.mark.parametrize("shape", [name for name in SHAPES if name != "sliced, uneven"])
@pytest.mark.parametrize("kind", ["host private", "host shared", "cuda vmm"])
def test_contents(kind: str, shape: str, tmp_path: Path) -> None:
    with provider_of(kind, tmp_path) as provider:
        manager = SHAPES[shape].manager(provider)
        walk = Walk(manager, provider, seed=len(kind) + len(shape))
        walk.run()
        assert walk.woken > 0
        manager.trim()
        assert walk.asleep() == 0
        manager.close()
