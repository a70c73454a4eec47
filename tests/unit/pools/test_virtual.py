"""Pools that manage addresses and memory apart, over a provider that is watched strictly."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.fakes.apart import UNIT, ApartProvider
from tests.fakes.laddered import agree, end
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeFailure
from umfpy import (
    Allocation,
    Capability,
    Growth,
    InvalidArgument,
    OutOfMemoryError,
    Pool,
    VirtualGrowth,
)
from umfpy.core.extents import SAFE
from umfpy.pools.rungs import RUNGS
from umfpy.provider import ChunkInfo

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture
def provider() -> ApartProvider:
    return ApartProvider(memory=64 * UNIT)


@pytest.fixture
def pool(provider: ApartProvider) -> Iterator[Pool]:
    """A pool from which everything goes back in the end."""
    made = Pool(provider)
    yield made
    end(made, provider)


# Which pool it is.


@pytest.mark.parametrize("lacks", [Capability.RESERVE, Capability.SPLIT, Capability.COMMIT])
def test_a_provider_that_lacks_something(lacks: Capability) -> None:
    provider = ApartProvider()
    provider.capabilities &= ~lacks

    assert not Pool(provider).virtual
    with pytest.raises(InvalidArgument, match="RESERVE, SPLIT and COMMIT, such as CudaVmmProv"):
        Pool(provider, virtual=True)
    with pytest.raises(InvalidArgument, match="growth must be a Growth"):
        Pool(provider, growth=VirtualGrowth())


@pytest.mark.parametrize("growth", [Growth(), "large", 3, VirtualGrowth])
def test_a_growth_of_another_kind(provider: ApartProvider, growth: object) -> None:
    with pytest.raises(InvalidArgument, match="growth must be a VirtualGrowth with virtual=True"):
        Pool(provider, virtual=True, growth=growth)


def test_a_growth_says_what_pool_it_is_for(provider: ApartProvider) -> None:
    provider.memory_type = "host"

    assert not Pool(provider).virtual
    assert not Pool(provider, growth=Growth()).virtual
    assert Pool(provider, growth=VirtualGrowth()).virtual
    assert Pool(provider, virtual=True).virtual


# Addresses.


def test_twice_as_many_addresses_as_the_device_has_memory(
    pool: Pool, provider: ApartProvider
) -> None:
    first = pool.malloc(1)

    assert provider.live_bytes == 128 * UNIT
    assert pool.stats().unbacked_bytes == 127 * UNIT
    assert pool.stats().extents == pool.stats().provider_allocs == 1
    pool.free(first)
    assert pool.trim() == UNIT
    assert (pool.stats().extents, pool.stats().provider_frees) == (0, 1)


@pytest.mark.parametrize(("memory", "wanted"), [(None, 1 << 38), (1 << 50, 1 << 51)])
def test_few_addresses_are_better_than_none(memory: int | None, wanted: int) -> None:
    """Where there are not as many as a pool would like, it takes what the request needs."""
    provider = ApartProvider(memory=memory)
    pool = Pool(provider)
    reserve, asked = provider.reserve, []

    def scarce(size: int, alignment: int = 0) -> int:
        asked.append(size)
        if size > 20 * UNIT:
            raise OutOfMemoryError(f"no {size} bytes of addresses", requested=size)
        return reserve(size, alignment)

    provider.reserve = scarce
    pool.malloc(3 * UNIT)
    pool.malloc(2 * UNIT)

    assert [extent.size // UNIT for extent in pool.map.extents.values()] == [4, 3]
    assert asked == [wanted, 4 * UNIT, wanted, 3 * UNIT]
    with pytest.raises(OutOfMemoryError):
        pool.malloc(20 * UNIT)
    del provider.reserve
    end(pool, provider)


def test_no_addresses_are_no_memory(pool: Pool, provider: ApartProvider) -> None:
    provider.capacity = UNIT

    with pytest.raises(OutOfMemoryError, match="has no"):
        pool.malloc(UNIT)

    assert not provider.live


def test_addresses_that_are_somebody_elses_go_back(pool: Pool, provider: ApartProvider) -> None:
    """A provider that gives the same twice is found out, and everything is as it was."""
    first = pool.malloc(40 * UNIT)
    before = picture(pool)
    gone = []
    provider.reserve = lambda size, alignment=0: first
    provider.free = lambda ptr, size: gone.append((ptr, size))

    with pytest.raises(InvalidArgument, match="overlap"):
        pool.malloc(UNIT, alignment=256 * UNIT if first % (256 * UNIT) else 512 * UNIT)

    assert [ptr for ptr, _ in gone] == [first]
    assert picture(pool) == before
    del provider.free, provider.reserve


def test_extents_side_by_side_are_not_one(provider: ApartProvider) -> None:
    """Neither for a request, nor for a block that grows, nor for memory that moves."""
    provider.memory = 4 * UNIT
    pool = Pool(provider)
    made = [pool.allocate(0, 8 * UNIT) for _ in range(3)]
    extents = sorted((extent.base, extent.size) for extent in pool.map.extents.values())
    assert all(base + size == after for (base, size), (after, _) in pairwise(extents))
    assert len(extents) > 1
    assert not any(allocation.resize(9 * UNIT) for allocation in made)
    made.clear()

    provider.memory = 64 * UNIT
    for size in (7, 11, 2, 30):
        made.append(pool.allocate(size * UNIT))
        agree(pool, provider)
    made.clear()
    end(pool, provider)


# Memory.


def test_the_device_without_streams_waits_for_nobody() -> None:
    provider = ApartProvider(memory=16 * UNIT, streams=False)
    pool = Pool(provider)
    made = [pool.malloc(2 * UNIT) for _ in range(8)]
    for ptr in made[::2]:
        pool.free(ptr)

    pool.malloc(8 * UNIT)

    assert provider.counts["synchronize"] == 0
    assert provider.counts["remap"] == 1
    end(pool, provider)


def test_a_device_with_streams_is_waited_for_before_memory_moves(
    pool: Pool, provider: ApartProvider
) -> None:
    """A stream may be at work on what it has freed, and `remap` need not wait for it."""
    made = [pool.malloc(2 * UNIT) for _ in range(8)]
    for ptr in made[::2]:
        pool.free(ptr)
    provider.calls.clear()

    pool.malloc(8 * UNIT)

    calls = [call[0] for call in provider.calls]
    assert "synchronize" in calls[: calls.index("remap")]


def test_a_device_with_streams_is_waited_for_before_memory_goes(
    pool: Pool, provider: ApartProvider
) -> None:
    pool.free(pool.malloc(UNIT))
    start, size = pool.map.free_ranges(SAFE)[0]
    provider.calls.clear()

    assert pool._supply._backing.drop(ChunkInfo(start, size))

    calls = [call[0] for call in provider.calls]
    assert "synchronize" in calls[: calls.index("decommit")]


def test_memory_moves_before_any_is_taken(pool: Pool, provider: ApartProvider) -> None:
    made = [pool.malloc(UNIT) for _ in range(8)]
    for ptr in made[::2]:
        pool.free(ptr)
    commits = provider.counts["commit"]

    pool.malloc(4 * UNIT)
    pool.malloc(2 * UNIT)

    assert provider.counts["remap"] == 1
    assert provider.counts["commit"] == commits + 1
    assert provider.held == 10 * UNIT


def test_a_window_is_filled_from_what_lies_outside(pool: Pool, provider: ApartProvider) -> None:
    """Usable memory in it stays there, and so does what lies before a block that grows."""
    array = pool.allocate(UNIT)
    pool.malloc(UNIT, 16 * UNIT)
    assert array.resize(3 * UNIT)
    assert array.resize(UNIT)
    assert [size for _, size in pool.map.free_ranges(SAFE)] == [2 * UNIT]

    assert array.resize(5 * UNIT)

    assert provider.counts["remap"] == 0
    assert provider.held == 6 * UNIT
    array.free()


def test_new_memory_is_taken_before_any_moves(pool: Pool, provider: ApartProvider) -> None:
    """So that nothing has changed where there is none."""
    made = [pool.malloc(8 * UNIT) for _ in range(8)]
    pool.free(made[2])
    pool.free(made[4])
    before = picture(pool)

    with pytest.raises(OutOfMemoryError):
        pool.malloc(17 * UNIT)

    assert provider.counts["remap"] == 0
    assert picture(pool)[1] != before[1], "free memory went to the device, to be had by others"
    assert provider.held == 48 * UNIT
    assert pool.malloc(16 * UNIT)


# Any order of calls, the provider failing at will.


class Walk:
    """One pool with little memory and few addresses, and what is live in it."""

    def __init__(self, seed: int, *, streams: bool) -> None:
        self.provider = ApartProvider(memory=48 * UNIT, streams=streams)
        growth = VirtualGrowth(small_until=8 * UNIT, minimum=3 * UNIT, largest=2 * UNIT)
        self.pool = Pool(self.provider, growth=growth)
        self.chance = random.Random(seed)
        self.streams = 3 if streams else 1
        self.live: list[Allocation] = []
        self.failed = self.refused = 0

    def step(self) -> None:
        what = self.chance.random()
        if self.chance.random() < 0.3:
            self.provider.fail(self.chance.randrange(1, 6))
        before = self.used()
        try:
            if what < 0.5:
                self.live.append(self.pool.allocate(self.size(), self.alignment(), self.stream()))
            elif what < 0.8 and self.live:
                self.live.pop(self.chance.randrange(len(self.live))).free()
            elif what < 0.95 and self.live:
                self.chance.choice(self.live).resize(self.size())
            elif what > 0.95:
                self.pool.trim(self.chance.randrange(20) * UNIT, rung=self.chance.choice(RUNGS))
        except OutOfMemoryError:
            self.refused += 1
            assert self.used() == before
            self.check_full()
        except FakeFailure:
            self.failed += 1
            assert self.used() == before
        self.provider.recover()
        agree(self.pool, self.provider)

    def used(self) -> list[tuple[int, int, bool, int]]:
        return [block for block in self.pool.map.blocks() if block[2]]

    def check_full(self) -> None:
        """What is refused had no memory: everything that can has gone by then."""
        used = sum(-(-(start + span) // UNIT) - start // UNIT for start, span, _, _ in self.used())
        assert self.provider.held <= used * UNIT

    def size(self) -> int:
        return self.chance.choice((0, 1, 700, UNIT, self.chance.randrange(20 * UNIT)))

    def alignment(self) -> int:
        return self.chance.choice((0, 0, 0, 1, 1024, 4 * UNIT, 32 * UNIT))

    def stream(self) -> int:
        return self.chance.randrange(self.streams)

    def end(self) -> None:
        self.provider.recover()
        for allocation in self.live:
            allocation.free()
        end(self.pool, self.provider)


@pytest.mark.parametrize("streams", [False, True], ids=["one order", "streams"])
@pytest.mark.parametrize("seed", range(3))
def test_any_order_of_calls(seed: int, streams: bool) -> None:
    walk = Walk(seed, streams=streams)

    for _ in range(1000):
        walk.step()

    walk.end()
    assert walk.failed > 20
    assert walk.refused > 20
    assert walk.provider.counts["remap"] > 10
