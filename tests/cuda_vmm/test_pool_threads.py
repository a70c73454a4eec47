"""Several threads on one pool over virtual memory: nobody waits for ever, and no byte is lost."""

from __future__ import annotations

import random
import threading

import pytest

from tests.fakes.beside import LONG, run_all
from tests.fakes.stamped import Stamped
from umfpy import (
    CudaVmmProvider,
    HostProvider,
    InvalidArgument,
    OutOfMemoryError,
    Pool,
    VirtualGrowth,
)
from umfpy.pools.rungs import RUNGS
from umfpy.providers.emulated import EmulatedCuda

KIB, MIB = 1 << 10, 1 << 20


class User:
    """Allocates, grows and frees in any order, and looks at every stamp of its own."""

    def __init__(self, pool: Pool, seed: int, *, stream: int | None = None) -> None:
        self.stamped = Stamped(pool)
        self.stream = stream
        self.chance = random.Random(seed)
        self.served = self.refused = 0

    def __call__(self) -> None:
        for _ in range(120):
            step = self.chance.random()
            if step < 0.5:
                self.take()
            elif self.stamped.live:
                one = self.chance.choice(list(self.stamped.live))
                if step < 0.8:
                    self.stamped.free(one)
                else:
                    self.stamped.resize(one, self.size())
        self.stamped.clear()

    def take(self) -> None:
        try:
            self.stamped.allocate(self.size(), 0, self.stream)
            self.served += 1
        except OutOfMemoryError:
            self.refused += 1

    def size(self) -> int:
        return self.chance.choice((100, 40 * KIB, 700 * KIB, 2 * MIB, 9 * MIB, 24 * MIB))


def trimmer(pool: Pool, done: threading.Event) -> None:
    chance = random.Random(1)
    while not done.is_set():
        pool.trim(chance.choice((0, MIB, 32 * MIB)), rung=chance.choice(RUNGS))


@pytest.mark.parametrize("streams", [False, True], ids=["one stream", "streams"])
@pytest.mark.parametrize("trims", [False, True], ids=["", "trims"])
@pytest.mark.parametrize("memory", ["128MiB", "4GiB"])
def test_no_byte_is_lost(
    emu: EmulatedCuda, provider: CudaVmmProvider, memory: str, trims: bool, streams: bool
) -> None:
    emu.set_memory(memory)
    pool = Pool(provider, growth=VirtualGrowth(small_until=MIB, minimum=8 * MIB))
    users = [User(pool, seed, stream=seed if streams else None) for seed in range(1, 4)]
    done = threading.Event()

    def work() -> None:
        try:
            run_all(*users)
        finally:
            done.set()

    run_all(work, *[lambda: trimmer(pool, done)] * trims)

    assert sum(user.served for user in users) > 60
    if memory == "4GiB":
        assert not any(user.refused for user in users)
    end(pool)


def test_host_memory(emu: EmulatedCuda) -> None:
    pool = Pool(HostProvider(), virtual=True)
    done = threading.Event()
    users = [User(pool, seed) for seed in range(3)]

    def work() -> None:
        try:
            run_all(*users)
        finally:
            done.set()

    run_all(work, lambda: trimmer(pool, done))

    end(pool)


def test_pools_that_ask_each_other(emu: EmulatedCuda, provider: CudaVmmProvider) -> None:
    """Each holds its own lock while it grows, and none while it asks."""
    emu.set_memory("96MiB")
    pools = [Pool(provider), Pool(provider), Pool(provider, virtual=False)]

    run_all(*(User(pool, seed) for seed, pool in enumerate(pools)))

    for pool in pools:
        end(pool)


def test_a_pool_that_is_closed_meanwhile(emu: EmulatedCuda, provider: CudaVmmProvider) -> None:
    """Whoever comes too late is told; what is live goes back with the last of it."""
    pool = Pool(provider)
    keep = pool.allocate(100)
    ready = threading.Barrier(3, timeout=LONG)

    def use_for_ever() -> None:
        while True:
            pool.allocate(3 * MIB).free()

    def work() -> None:
        ready.wait()
        with pytest.raises(InvalidArgument, match="closed"):
            use_for_ever()

    def close() -> None:
        ready.wait()
        with pytest.warns(ResourceWarning, match="live allocations"):
            pool.close()

    run_all(work, work, close)
    assert pool.stats().extents == 1

    keep.free()

    assert pool.stats().extents == 0


def end(pool: Pool) -> None:
    pool.check("full")
    assert pool.stats().live_allocations == 0
    pool.close()
    now = pool.stats()
    assert (now.extents, now.reserved_bytes, now.unbacked_bytes, now.hidden_bytes) == (0, 0, 0, 0)
