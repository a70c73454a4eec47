"""What pools of slabs keep idle: by bucket, and together."""

from __future__ import annotations

import gc

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import InvalidArgument, SharedLimit, SlabPool

KIB = 1 << 10
SLAB = 64 * KIB


def fill_and_free(pool: SlabPool, count: int, size: int = SLAB) -> None:
    """Leave `count` slabs without a used cell."""
    for ptr in [pool.malloc(size) for _ in range(count)]:
        pool.free(ptr)


@pytest.mark.parametrize("capacity", [0, 1, 4, 100])
def test_capacity_is_each_buckets_own(provider: FakeProvider, capacity: int) -> None:
    pool = SlabPool(provider, capacity=capacity)
    fill_and_free(pool, 6)
    fill_and_free(pool, 6, 128 * KIB)
    kept = min(capacity, 6)
    assert sorted(provider.live.values()) == kept * [SLAB] + kept * [2 * SLAB]
    assert pool.idle_bytes == 3 * kept * SLAB


def test_an_idle_slab_serves_the_next_request(provider: FakeProvider) -> None:
    pool = SlabPool(provider)
    fill_and_free(pool, 1)
    pool.free(pool.malloc(SLAB))
    assert provider.counts == {"alloc": 1}


def test_what_dropped_allocations_left_goes_with_the_next_call(provider: FakeProvider) -> None:
    pool = SlabPool(provider)
    for question in (pool.buckets, pool.stats, lambda: pool.allocate(SLAB)):
        held = [pool.allocate(SLAB) for _ in range(7)]
        held.clear()
        question()
        assert len(provider.live) == 4


def test_a_shared_limit_of_nothing_keeps_nothing(provider: FakeProvider) -> None:
    pool = SlabPool(provider, shared_limit=SharedLimit(0))
    fill_and_free(pool, 3)
    fill_and_free(pool, 3, 100)
    assert not provider.live


def test_buckets_of_one_pool_share_a_limit(provider: FakeProvider) -> None:
    limit = SharedLimit("192KiB")
    pool = SlabPool(provider, shared_limit=limit)
    fill_and_free(pool, 2)
    fill_and_free(pool, 2, 128 * KIB)
    assert limit.idle_bytes == provider.live_bytes == 2 * SLAB
    assert pool.shared_limit is limit
    assert "128.00 KiB idle of 192.00 KiB" in repr(limit)


def test_used_memory_is_not_limited(provider: FakeProvider) -> None:
    limit = SharedLimit(SLAB)
    pool = SlabPool(provider, shared_limit=limit)
    held = [pool.allocate(SLAB) for _ in range(5)]
    assert limit.idle_bytes == 0
    held.clear()
    assert pool.stats().reserved_bytes == limit.idle_bytes == SLAB


def test_trim_does_not_use_the_limit_up(provider: FakeProvider) -> None:
    # given a limit that is reached, and trimmed, over and over
    limit = SharedLimit(2 * SLAB)
    pool = SlabPool(provider, shared_limit=limit)
    for _ in range(10):
        fill_and_free(pool, 3)
        assert limit.idle_bytes == 2 * SLAB
        # when
        assert pool.trim() == 2 * SLAB
        # then it has room again
        assert limit.idle_bytes == 0


def test_a_lowered_limit_holds_from_the_next_call(provider: FakeProvider) -> None:
    limit = SharedLimit("1MiB")
    pool = SlabPool(provider, shared_limit=limit)
    fill_and_free(pool, 4)
    limit.limit_bytes = SLAB
    assert pool.stats().reserved_bytes == SLAB


def test_a_pool_that_is_gone_counts_no_more(provider: FakeProvider) -> None:
    limit = SharedLimit(2 * SLAB)
    first, second = (SlabPool(provider, shared_limit=limit) for _ in range(2))
    fill_and_free(first, 2)
    assert limit.idle_bytes == 2 * SLAB
    del first
    gc.collect()
    assert limit.idle_bytes == 0
    fill_and_free(second, 3)
    assert provider.live_bytes == 2 * SLAB


@pytest.mark.parametrize("wrong", [-1, "much", "1.0001KiB"])
def test_limits_that_are_none(wrong: object) -> None:
    with pytest.raises(InvalidArgument):
        SharedLimit(wrong)


@pytest.mark.parametrize("wrong", [{"keep_slabs": -1}, {"keep_bytes": 1, "keep_slabs": 1}])
def test_trims_that_are_none(provider: FakeProvider, wrong: dict) -> None:
    with pytest.raises(InvalidArgument):
        SlabPool(provider).trim(**wrong)
