"""Allocations that grow and shrink where they lie."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest

from tests.fakes.provider import FakeFailure, FakeProvider
from tests.fakes.structs import Structures
from umfpy import (
    Allocation,
    Capability,
    Growth,
    HostProvider,
    InvalidArgument,
    MemoryManager,
    NotSupported,
    Pool,
    ProxyPool,
    SlabPool,
    StaleHandle,
    find,
)
from umfpy.core.extents import COMING, HIDDEN, SAFE, UNBACKED

KIB = 1 << 10
GRANULE = 512
EXTENT = 64 * KIB
GROWTH = Growth(EXTENT, EXTENT)
A, B = 101, 102


@pytest.fixture
def pool(provider: FakeProvider) -> Pool:
    return Pool(provider, growth=GROWTH)


def picture(pool: Pool, allocation: Allocation) -> tuple[object, ...]:
    """What a call that did nothing must not have changed."""
    return pool.map.blocks(), pool.stats(), allocation.size, allocation.ptr, allocation.id


def ends_at(pool: Pool, allocation: Allocation) -> int:
    """The end of the allocation's block, from its start."""
    return next(span for start, span, used, _ in pool.map.blocks() if start == allocation.ptr)


# Growing.


@pytest.mark.parametrize("size", [1000, 1024])
def test_it_grows_inside_its_granules(pool: Pool, size: int) -> None:
    # given
    allocation, other = pool.allocate(700), pool.allocate(1)
    before, ptr, name = pool.stats(), allocation.ptr, allocation.id

    # when
    assert allocation.resize(size)

    # then
    now = pool.stats()
    assert (allocation.size, allocation.ptr, allocation.id) == (size, ptr, name)
    assert now.requested_bytes == before.requested_bytes + size - 700
    assert now.used_bytes == before.used_bytes
    assert not other.freed
    pool.check("full")


def test_it_grows_into_free_memory_behind_it(pool: Pool) -> None:
    # given
    allocation = pool.allocate(1000)

    # when
    assert allocation.resize(10_000)

    # then
    now = pool.stats()
    assert allocation.size == 10_000
    assert (now.requested_bytes, now.used_bytes) == (10_000, 20 * GRANULE)
    assert (now.peak_requested_bytes, now.peak_used_bytes) == (10_000, 20 * GRANULE)
    assert now.allocations == 1
    assert now.reserved_bytes == EXTENT
    pool.check("full")


def test_it_grows_to_the_end_of_its_extent_and_no_further(pool: Pool) -> None:
    # given
    allocation = pool.allocate(1000)

    # when, then
    assert allocation.resize(EXTENT)
    assert pool.stats().largest_free_bytes == 0
    before = picture(pool, allocation)
    assert not allocation.resize(EXTENT + 1)
    assert picture(pool, allocation) == before
    pool.check("full")


def test_it_does_not_grow_into_what_is_used(pool: Pool) -> None:
    # given
    allocation, other = pool.allocate(1000), pool.allocate(1000)
    before = picture(pool, allocation)

    # when, then
    assert not allocation.resize(1025)
    assert picture(pool, allocation) == before
    other.free()
    assert allocation.resize(1025)
    pool.check("full")


def test_the_block_that_was_freed_last_is_free(pool: Pool) -> None:
    # given: nothing merges what was freed last before the next call
    allocation, other, wall = pool.allocate(512), pool.allocate(512), pool.allocate(512)
    other.free()

    # when, then
    assert not allocation.resize(1025)
    assert allocation.resize(1024)
    assert allocation.ptr + 1024 == wall.ptr
    pool.check("full")


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) + 1, (1 << 64) - 1, 1 << 64, 1 << 100])
def test_it_does_not_grow_beyond_everything(pool: Pool, size: int) -> None:
    allocation = pool.allocate(1000)
    before = picture(pool, allocation)
    assert not allocation.resize(size)
    assert picture(pool, allocation) == before


def test_the_same_size_is_always_possible(pool: Pool) -> None:
    allocation, other = pool.allocate(1000), pool.allocate(1)
    assert allocation.resize(1000)
    assert allocation.size == 1000
    assert not other.freed


# Shrinking.


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 9_000])
def test_it_shrinks_and_the_rest_is_free(pool: Pool, size: int) -> None:
    # given
    allocation, wall = pool.allocate(10_000), pool.allocate(512)
    kept = max(-(-size // GRANULE), 1) * GRANULE

    # when
    assert allocation.resize(size)

    # then
    now = pool.stats()
    assert allocation.size == size
    assert ends_at(pool, allocation) == kept
    assert now.requested_bytes == size + 512
    assert now.used_bytes == kept + 512
    assert now.peak_requested_bytes == 10_512
    pool.check("full")
    rest = pool.allocate(20 * GRANULE - kept)
    assert (rest.ptr, rest.ptr + rest.size) == (allocation.ptr + kept, wall.ptr)
    assert find(allocation.ptr).size == size


def test_it_shrinks_inside_its_last_granule(pool: Pool) -> None:
    allocation = pool.allocate(1000)
    blocks = pool.map.blocks()
    assert allocation.resize(600)
    assert pool.map.blocks() == blocks
    assert pool.stats().requested_bytes == 600


def test_what_it_lets_go_joins_its_neighbour(pool: Pool) -> None:
    allocation = pool.allocate(10_000)
    assert allocation.resize(0)
    assert len(pool.map.blocks()) == 2
    allocation.free()
    assert len(pool.map.blocks()) == 1


def test_it_is_freed_with_the_size_that_it_has(pool: Pool) -> None:
    allocation = pool.allocate(1000)
    assert allocation.resize(20_000)
    assert allocation.resize(3_000)
    allocation.free()
    now = pool.stats()
    assert (now.requested_bytes, now.used_bytes, now.live_allocations) == (0, 0, 0)
    assert len(pool.map.free_extents()) == 1


# Errors.


@pytest.mark.parametrize("size", [-1, None, "1", 1.0, -(1 << 70)])
def test_sizes_that_are_none(pool: Pool, size: object) -> None:
    allocation = pool.allocate(1000)
    before = picture(pool, allocation)
    with pytest.raises(InvalidArgument, match="size must be an integer"):
        allocation.resize(size)
    assert picture(pool, allocation) == before


def test_what_was_freed_has_no_size_to_change(pool: Pool) -> None:
    allocation = pool.allocate(1000)
    allocation.free()
    for size in (0, 1000, 2000):
        with pytest.raises(StaleHandle, match="freed already"):
            allocation.resize(size)


def test_a_closed_pool_gives_nothing_more_and_takes_back(pool: Pool) -> None:
    # given
    allocation = pool.allocate(10_000)
    with pytest.warns(ResourceWarning, match="closed with 1 live"):
        pool.close()

    # when, then
    for size in (10_001, 20_000):
        with pytest.raises(InvalidArgument, match="is closed"):
            allocation.resize(size)
    assert allocation.resize(10_000)
    assert allocation.resize(100)
    pool.check("full")
    allocation.free()
    assert pool.stats().reserved_bytes == 0


def test_memory_that_another_pool_lives_in_does_not_shrink(pool: Pool) -> None:
    # given
    allocation = pool.allocate(8 * KIB)
    inner = ProxyPool(pool)
    inner.map.add(allocation.ptr, 4 * KIB, pool.provider)
    before = picture(pool, allocation)

    # when, then
    for size in (0, 4 * KIB, 8 * KIB - 1):
        with pytest.raises(InvalidArgument, match="close that pool before it shrinks"):
            allocation.resize(size)
    assert picture(pool, allocation) == before
    assert allocation.resize(9 * KIB)
    pool.check("full")
    with pytest.raises(InvalidArgument, match="holds the memory of another pool"):
        allocation.free()
    (extent,) = inner.map.free_extents()
    assert inner.map.remove(extent)
    assert allocation.resize(0)


def test_a_larger_allocation_can_host_more(pool: Pool) -> None:
    """The extents of a pool inside lie in the block as it is now."""
    # given
    allocation = pool.allocate(KIB)
    inner = ProxyPool(pool)
    with pytest.raises(InvalidArgument, match="do not lie inside one allocation"):
        inner.map.add(allocation.ptr, 4 * KIB, pool.provider)

    # when, then
    assert allocation.resize(4 * KIB)
    extent = inner.map.add(allocation.ptr, 4 * KIB, pool.provider)
    assert extent.parent is not None
    assert inner.map.remove(extent)


@pytest.mark.parametrize("size", [1, 20_000])
def test_without_host_memory_nothing_changes(pool: Pool, size: int) -> None:
    # given: an array of blocks that is full, and as large as it can be
    allocation = pool.allocate(10_000)
    before = picture(pool, allocation)
    structures = Structures(pool.map)
    for field in ("blocks_used", "blocks_capacity"):
        structures.poke(structures.map, field, 0xF0000000)

    # when
    try:
        with pytest.raises(MemoryError, match="no host memory"):
            allocation.resize(size)
    finally:
        structures.restore()

    # then
    assert picture(pool, allocation) == before
    pool.check("full")


# Streams.


@pytest.fixture
def streams(streamed: FakeProvider) -> Pool:
    """A pool whose memory two streams have used, after a wait for the device."""
    made = Pool(streamed, growth=GROWTH)
    for stream in (A, B):
        made.allocate(EXTENT, stream=stream).free()
    made.synchronize()
    return made


def test_what_it_lets_go_is_its_streams(streams: Pool) -> None:
    # given
    allocation = streams.allocate(EXTENT, stream=A)
    waits = streams.provider.counts["synchronize"]

    # when
    assert allocation.resize(EXTENT // 2)

    # then
    mine = streams.allocate(EXTENT // 4, stream=A)
    assert mine.ptr == allocation.ptr + EXTENT // 2
    other = streams.allocate(EXTENT // 4, stream=B)
    assert find(other.ptr) is not None
    assert not mine.ptr <= other.ptr < allocation.ptr + EXTENT or (
        streams.provider.counts["synchronize"] > waits
    )


def test_it_grows_into_what_its_own_stream_freed(streams: Pool) -> None:
    # given: own, the stream's, safe
    allocation = streams.allocate(512, stream=A)
    streams.allocate(512, stream=A).free()
    waits = streams.provider.counts["synchronize"]

    # when, then
    assert allocation.resize(4 * KIB)
    assert streams.provider.counts["synchronize"] == waits
    streams.check("full")


def test_it_does_not_grow_into_what_another_stream_freed(streams: Pool) -> None:
    # given
    allocation, other = streams.allocate(512, stream=A), streams.allocate(512, stream=B)
    assert other.ptr == allocation.ptr + 512
    other.free()
    before = streams.map.blocks()

    # when, then
    assert not allocation.resize(1024)
    assert streams.map.blocks() == before
    streams.synchronize()
    assert allocation.resize(1024)


def test_it_does_not_grow_while_the_device_is_waited_for(streams: Pool) -> None:
    # given
    allocation = streams.allocate(512, stream=A)
    streams.allocate(512, stream=A).free()
    streams.map.retire()

    # when, then
    assert not allocation.resize(1024)
    streams.map.retired()
    assert allocation.resize(1024)


# Zeros.


def test_new_bytes_read_as_zero(provider: FakeProvider) -> None:
    # given
    provider.capabilities |= Capability.ZERO
    pool = Pool(provider, growth=GROWTH)
    allocation = pool.allocate(1000, stream=A)

    # when
    assert allocation.resize(5000, zero=True)
    assert allocation.resize(100, zero=True)
    assert allocation.resize(200, zero=True)

    # then
    calls = [call for call in provider.calls if call[0] == "zero"]
    assert calls == [
        ("zero", allocation.ptr + 1000, 4000, A),
        ("zero", allocation.ptr + 100, 100, A),
    ]


def test_new_bytes_that_nobody_used_are_not_cleared(provider: FakeProvider) -> None:
    # given: 4 KiB used once, and fresh memory behind
    provider.capabilities |= Capability.ZERO | Capability.FRESH_ZERO
    pool = Pool(provider, growth=GROWTH)
    pool.allocate(4 * KIB).free()
    allocation = pool.allocate(512)

    # when
    assert allocation.resize(6 * KIB, zero=True)
    assert allocation.resize(8 * KIB, zero=True)

    # then: the second time all of it is fresh
    calls = [call for call in provider.calls if call[0] == "zero"]
    assert calls == [("zero", allocation.ptr + 512, 4 * KIB - 512, 0)]
    pool.check("full")
    # What it grew into was used.
    assert allocation.resize(512)
    assert allocation.resize(8 * KIB, zero=True)
    assert provider.calls[-1] == ("zero", allocation.ptr + 512, 8 * KIB - 512, 0)


def test_the_rest_of_the_last_granule_is_cleared(provider: FakeProvider) -> None:
    provider.capabilities |= Capability.ZERO | Capability.FRESH_ZERO
    pool = Pool(provider, growth=GROWTH)
    allocation = pool.allocate(100)
    assert allocation.resize(1024, zero=True)
    assert provider.calls[-1] == ("zero", allocation.ptr + 100, 412, 0)


@pytest.mark.parametrize(
    "make",
    [lambda provider: Pool(provider, zero=True), lambda provider: SlabPool(provider, zero=True)],
    ids=["pool", "cell"],
)
def test_a_pool_that_always_gives_zeros_does_so_here(
    provider: FakeProvider, make: Callable[[FakeProvider], Pool]
) -> None:
    # given
    provider.capabilities |= Capability.ZERO
    allocation = make(provider).allocate(100)

    # when
    assert allocation.resize(500)

    # then
    assert provider.calls[-1] == ("zero", allocation.ptr + 100, 400, 0)


def test_zeros_need_a_provider_that_can(pool: Pool) -> None:
    allocation = pool.allocate(1000)
    before = picture(pool, allocation)
    with pytest.raises(NotSupported, match="zero=True"):
        allocation.resize(2000, zero=True)
    assert picture(pool, allocation) == before


def test_zeros_that_fail_leave_it_as_it_was(provider: FakeProvider) -> None:
    # given
    provider.capabilities |= Capability.ZERO
    pool = Pool(provider, growth=GROWTH)
    allocation = pool.allocate(1000)
    blocks, requested = pool.map.blocks(), pool.stats().requested_bytes
    provider.fail(1)

    # when
    with pytest.raises(FakeFailure):
        allocation.resize(5000, zero=True)

    # then
    assert (allocation.size, pool.map.blocks()) == (1000, blocks)
    assert pool.stats().requested_bytes == requested
    pool.check("full")


def test_contents_stay() -> None:
    with Pool(HostProvider()) as pool:
        allocation = pool.allocate(10_000)
        words = bytes(range(250)) * 40
        ctypes.memmove(allocation.ptr, words, 10_000)
        assert allocation.resize(40_000, zero=True)
        assert ctypes.string_at(allocation.ptr, 10_000) == words
        assert ctypes.string_at(allocation.ptr + 10_000, 30_000) == bytes(30_000)
        assert allocation.resize(5_000)
        assert allocation.resize(10_000, zero=True)
        assert ctypes.string_at(allocation.ptr, 10_000) == words[:5_000] + bytes(5_000)
        allocation.free()


# Memory that has to come first.


class Hollow(Pool):
    """A pool over addresses whose memory comes on demand, as much as `chunk` at a time."""

    chunk = EXTENT

    def __init__(self, provider: FakeProvider) -> None:
        super().__init__(provider, growth=GROWTH)
        self.asked: list[tuple[int, int, int]] = []

    def hollow_out(self, start: int, size: int, state: int = UNBACKED) -> None:
        assert self.map.retag(start, size, SAFE, state)

    def _extend(self, end: int, missing: int, stream: int) -> bool:
        self.asked.append((end, missing, stream))
        size = min(missing, self.chunk)
        if not self.map.retag(end, size, UNBACKED, COMING):
            return False
        self.provider.synchronize()  # stands for the driver's call: it may fail
        return self.map.retag(end, size, COMING, SAFE)


@pytest.fixture
def hollow(provider: FakeProvider) -> Hollow:
    return Hollow(provider)


def test_a_pool_may_put_memory_behind_a_block_that_grows(hollow: Hollow) -> None:
    # given: 1 KiB used, 1 KiB free, the rest without memory
    allocation = hollow.allocate(KIB, stream=A)
    hollow.hollow_out(allocation.ptr + 2 * KIB, EXTENT - 2 * KIB)

    # when
    assert allocation.resize(5 * KIB - 100)

    # then
    assert hollow.asked == [(allocation.ptr + 2 * KIB, 3 * KIB, A)]
    assert hollow.map.counters()["unbacked"] == EXTENT - 5 * KIB
    hollow.check("full")


def test_memory_may_come_in_several_steps(hollow: Hollow) -> None:
    # given
    allocation = hollow.allocate(KIB)
    hollow.hollow_out(allocation.ptr + KIB, EXTENT - KIB)
    hollow.chunk = KIB

    # when, then
    assert allocation.resize(4 * KIB)
    assert [missing for _, missing, _ in hollow.asked] == [3 * KIB, 2 * KIB, KIB]


def test_a_pool_that_brings_nothing_is_asked_once(hollow: Hollow) -> None:
    # given
    allocation = hollow.allocate(KIB)
    hollow.hollow_out(allocation.ptr + KIB, KIB, HIDDEN)
    before = picture(hollow, allocation)

    # when, then
    assert not allocation.resize(2 * KIB)
    assert picture(hollow, allocation) == before
    assert len(hollow.asked) == 1
    hollow._extend = lambda end, missing, stream: True
    assert not allocation.resize(2 * KIB)
    assert picture(hollow, allocation) == before


def test_nobody_is_asked_where_the_memory_is_used(hollow: Hollow) -> None:
    allocation, other = hollow.allocate(KIB), hollow.allocate(KIB)
    assert not allocation.resize(2 * KIB)
    assert not other.resize(EXTENT)
    assert hollow.asked == []


def test_a_driver_that_fails_changes_nothing(hollow: Hollow, provider: FakeProvider) -> None:
    # given
    allocation = hollow.allocate(KIB)
    hollow.hollow_out(allocation.ptr + KIB, EXTENT - KIB)
    size = allocation.size
    provider.fail(1)

    # when, then
    with pytest.raises(FakeFailure):
        allocation.resize(2 * KIB)
    assert allocation.size == size
    assert hollow.stats().used_bytes == KIB
    hollow.check("full")


# Pools whose blocks stay whole.


WHOLE: dict[str, Callable[[FakeProvider], object]] = {
    "proxy": ProxyPool,
    "cell": SlabPool,
    "large": lambda provider: SlabPool(provider, largest=1000),
    "page": lambda provider: MemoryManager(provider, "exclusive_pages"),
    "slice": lambda provider: MemoryManager(provider, "sub_slices"),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_a_block_that_stays_whole_takes_any_size_that_it_holds(
    provider: FakeProvider, kind: str
) -> None:
    # given
    pool = WHOLE[kind](provider)
    allocation = pool.allocate(1300)
    used = pool.stats().used_bytes

    # when, then
    for size in (1400, 1, 0, 1350):
        assert allocation.resize(size)
        assert allocation.size == size
        now = pool.stats()
        assert (now.requested_bytes, now.used_bytes) == (size, used)
        assert now.peak_requested_bytes == 1400
        pool.check("full")
    # A peak is one, too, if nobody looks at it meanwhile.
    assert allocation.resize(1500)
    assert allocation.resize(used - 1)
    assert allocation.resize(1)
    assert pool.stats().peak_requested_bytes == used - 1
    assert allocation.resize(used)
    assert not allocation.resize(used + 1)
    assert allocation.size == used
    allocation.free()
    assert pool.stats().requested_bytes == 0
    pool.close()


def test_a_block_that_stays_whole_notes_two_gibibytes_of_padding(provider: FakeProvider) -> None:
    # given
    pool = ProxyPool(provider)
    allocation = pool.allocate(4 << 30)

    # when, then
    assert not allocation.resize(1)
    assert allocation.resize((2 << 30) + 1)
    pool.check("full")


# Threads.


def test_threads_that_grow_into_the_same_memory_do_not_share_it(pool: Pool) -> None:
    # given: pairs of neighbours, one grows and one allocates
    rounds = 300
    overlaps: list[int] = []
    start = threading.Barrier(2)
    held: dict[str, Allocation] = {}

    def grow() -> None:
        for _ in range(rounds):
            held["low"] = pool.allocate(512)
            start.wait()
            held["low"].resize(4 * KIB)
            start.wait()
            start.wait()
            held["low"].free()

    def take() -> None:
        for _ in range(rounds):
            start.wait()
            mine = pool.allocate(2 * KIB)
            start.wait()
            low = held["low"]
            if mine.ptr < low.ptr + max(low.size, 1) and low.ptr < mine.ptr + mine.size:
                overlaps.append(mine.ptr)
            mine.free()
            start.wait()

    # when
    threads = [threading.Thread(target=call) for call in (grow, take)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # then
    assert overlaps == []
    held.clear()
    assert pool.stats().used_bytes == 0
    pool.check("full")
