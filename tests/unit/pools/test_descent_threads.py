"""Memory goes down in one thread while others use the pool."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from tests.fakes.beside import run_all
from tests.fakes.laddered import LadderedProvider, agree
from tests.fakes.ladders import LOWERING, pattern, provider_of, read, write
from umfpy import Growth, Idle, OutOfMemoryError, Pool, Provider, SlabPool
from umfpy.pools.base import ProviderPool
from umfpy.pools.rungs import RUNGS

KIB = 1 << 10
MIB = 1 << 20
ROUNDS = 60


def use(pool: ProviderPool, provider: Provider, seed: int) -> None:
    """Allocate, write, read back and free, in any order; what is live is nobody else's."""
    chance = random.Random(seed)
    held: list[tuple[int, int]] = []
    for _ in range(ROUNDS):
        size = chance.choice((700, 5 * KIB, 300 * KIB, MIB, 3 * MIB))
        ptr = pool.malloc(size)
        write(provider, ptr, pattern(ptr + seed, size))
        held.append((ptr, size))
        if len(held) > 4 or chance.random() < 0.4:
            ptr, size = held.pop(chance.randrange(len(held)))
            assert read(provider, ptr, size) == pattern(ptr + seed, size)
            pool.free(ptr)
    for ptr, size in held:
        assert read(provider, ptr, size) == pattern(ptr + seed, size)
        pool.free(ptr)


@pytest.mark.parametrize("shape", [Pool, SlabPool])
@pytest.mark.parametrize("kind", LOWERING)
def test_others_allocate_meanwhile(kind: str, shape: type, tmp_path: Path) -> None:
    with provider_of(kind, tmp_path) as provider:
        pool = shape(provider)

        def trim(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(ROUNDS):
                pool.trim(chance.choice((0, MIB, 8 * MIB)), rung=chance.choice(RUNGS))

        bodies = [lambda seed=seed: use(pool, provider, seed) for seed in range(3)]
        run_all(*bodies, lambda: trim(1), lambda: trim(2))

        pool.check("full")
        assert pool.stats().live_allocations == 0
        pool.close()
        now = pool.stats()
        assert (now.extents, now.reserved_bytes, now.unbacked_bytes) == (0, 0, 0)
        assert provider.live_count() == 0


@pytest.mark.parametrize("rung", RUNGS[:-1])
def test_a_range_on_its_way_down_is_nobody_elses(rung: str) -> None:
    """While the driver works on it no request gets it, and what is freed beside it stays."""
    provider = LadderedProvider()
    pool = Pool(provider, growth=Growth(256 * KIB, 256 * KIB))
    low, middle, high = (pool.malloc(64 * KIB) for _ in range(3))
    pool.free(middle)
    native, seen = getattr(provider, rung), []

    def slow(ptr: int, size: int) -> None:
        other = threading.Thread(target=lambda: seen.append(pool.map.allocate(64 * KIB)))
        other.start()
        other.join()
        if len(seen) == 1:
            pool.free(low)
        native(ptr, size)

    setattr(provider, rung, slow)
    assert pool.trim(rung=rung) == 128 * KIB
    delattr(provider, rung)

    assert seen == [None, low], "nothing but what was freed meanwhile"
    agree(pool, provider)
    for ptr in (low, high):
        pool.free(ptr)
    pool.close()
    assert not provider.live


def test_an_idle_policy_beside_requests() -> None:
    """The thread of the pool and those that use it are never at one range."""
    provider = LadderedProvider()
    pool = Pool(provider, growth=Growth(256 * KIB, 256 * KIB))
    pool._follow(Idle(rungs=("purge_lazy", "decommit"), after_seconds=0.0005, thread=True))

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(300):
            held = [pool.malloc(chance.randrange(1, 100 * KIB)) for _ in range(chance.randrange(6))]
            for ptr in held:
                pool.free(ptr)

    run_all(*(lambda seed=seed: work(seed) for seed in range(3)))
    pool.close()
    assert pool._idle_thread.join(60)
    agree(pool, provider)
    assert not provider.live


def test_a_pool_at_its_limit_beside_a_trim() -> None:
    """Memory that goes down makes room under the limit, and no more than that."""
    provider = LadderedProvider()
    pool = Pool(provider, growth=Growth(64 * KIB, 64 * KIB), limit_bytes=512 * KIB)

    def work(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(200):
            try:
                ptr = pool.malloc(chance.randrange(1, 64 * KIB))
            except OutOfMemoryError:
                continue
            assert pool.stats().reserved_bytes <= 512 * KIB
            pool.free(ptr)

    def trim() -> None:
        for turn in range(200):
            pool.trim(rung=RUNGS[turn % len(RUNGS)])

    run_all(lambda: work(1), lambda: work(2), trim)
    agree(pool, provider)
    pool.close()
    assert not provider.live
