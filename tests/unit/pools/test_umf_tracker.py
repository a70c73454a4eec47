"""The numbered behaviours 20 to 26 of UMF's tracker, which in umfpy is the extent map itself.

umfpy nests to any depth where UMF stops at eight levels (22), and refuses to free memory that
another pool lives in, where UMF leaves that to the caller (23).
"""

from __future__ import annotations

import random

import pytest

from tests.fakes.pictures import picture
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import Allocation, InvalidArgument, Pool, ProxyPool, find
from umfpy.providers.host import FixedProvider

KIB = 1 << 10


def fixed(allocation: Allocation, offset: int = 0, size: int | None = None) -> FixedProvider:
    """A provider over a part of an allocation."""
    length = allocation.size - offset if size is None else size
    return FixedProvider(allocation.ptr + offset, length, memory_type="device", device=0)


@pytest.mark.parametrize(("offset", "size"), [(0, 64 * KIB), (0, 32 * KIB), (32 * KIB, 32 * KIB)])
def test_umf_20_a_pool_on_another_pools_allocation(
    provider: FakeProvider, offset: int, size: int
) -> None:
    # given
    outer = Pool(provider)
    lot = outer.allocate(64 * KIB)

    # when
    inner = ProxyPool(fixed(lot, offset, size))
    piece = inner.allocate(size)

    # then
    assert piece.ptr == lot.ptr + offset
    assert find(piece.ptr).pool is inner
    assert find(lot.ptr + (offset + size) % lot.size).pool in (inner, outer)
    piece.free()
    assert find(lot.ptr + offset).pool is outer
    inner.close()
    lot.free()


def test_umf_21_a_child_beyond_its_parent_fails_cleanly(provider: FakeProvider) -> None:
    # given
    outer = Pool(provider)
    lot = outer.allocate(64 * KIB)
    beyond = ProxyPool(fixed(lot, 32 * KIB, 64 * KIB))
    before = picture(outer)

    # when
    with pytest.raises(InvalidArgument, match="inside one allocation"):
        beyond.allocate(64 * KIB)

    # then
    assert picture(outer) == before
    assert beyond.stats().live_allocations == 0
    lot.free()
    outer.check()


def test_umf_21_memory_that_another_pool_manages_is_refused(provider: FakeProvider) -> None:
    outer = Pool(provider)
    lot = outer.allocate(64 * KIB)
    first = ProxyPool(fixed(lot))
    taken = first.allocate(8 * KIB)

    # Also where an extent nested in the first one hides it from the end of the range.
    inner = ProxyPool(fixed(taken, 0, 512))
    hidden = inner.allocate(512)
    with pytest.raises(InvalidArgument, match="overlap"):
        Pool(fixed(lot, 4 * KIB, 32 * KIB)).allocate(30 * KIB)

    hidden.free()
    taken.free()
    lot.free()


@pytest.mark.parametrize("depth", [8, 9, 30])
def test_umf_22_any_depth_nests(provider: FakeProvider, depth: int) -> None:
    pools = [Pool(provider)]
    for _ in range(depth):
        pools.append(Pool(pools[-1]))

    ptr = pools[-1].malloc(100)

    assert find(ptr).pool is pools[-1]
    pools[-1].free(ptr)
    for pool in reversed(pools):
        pool.close()
    assert not provider.live


def test_umf_23_memory_with_a_live_child_cannot_be_freed(provider: FakeProvider) -> None:
    # given
    outer = Pool(provider)
    lot = outer.malloc(64 * KIB)
    inner = ProxyPool(FixedProvider(lot, 64 * KIB, memory_type="device", device=0))
    piece = inner.allocate(KIB)
    before = picture(outer)

    # when
    with pytest.raises(InvalidArgument, match="another pool"):
        outer.free(lot)

    # then
    assert picture(outer) == before
    piece.free()
    outer.free(lot)
    outer.check()


def test_umf_23_an_allocation_dropped_under_a_live_child_warns(provider: FakeProvider) -> None:
    outer = Pool(provider)
    lot = outer.allocate(64 * KIB)
    inner = ProxyPool(fixed(lot))
    piece = inner.allocate(KIB)

    with pytest.raises(InvalidArgument, match="another pool"):
        lot.free()
    piece.free()
    lot.free()
    outer.check()


def test_umf_24_the_last_byte_belongs_and_the_next_does_not(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    allocation = pool.allocate(1000)

    assert find(allocation.ptr).base == find(allocation.ptr + 999).base == allocation.ptr
    assert find(allocation.ptr + 999).offset == 999
    past = find(allocation.ptr + 1000)
    assert past is None
    assert find(allocation.ptr - 1) is None
    allocation.free()
    assert find(allocation.ptr) is None


def test_umf_25_many_allocations_each_lead_back() -> None:
    # given
    chance = random.Random(25)
    pools = [kind(FakeProvider()) for kind in (Pool, ProxyPool) for _ in range(3)]

    # when
    made = [
        (pool, pool.allocate(chance.randrange(1, 100_000)))
        for pool in (chance.choice(pools) for _ in range(256))
    ]

    # then
    for pool, allocation in made:
        for offset in (0, allocation.size // 2, allocation.size - 1):
            info = find(allocation.ptr + offset)
            assert (info.pool, info.base, info.size, info.offset, info.id) == (
                pool,
                allocation.ptr,
                allocation.size,
                offset,
                allocation.id,
            )
    assert len({allocation.id for _, allocation in made}) == 256


def test_umf_26_a_free_that_fails_upstream_can_be_retried(provider: FakeProvider) -> None:
    pool = ProxyPool(provider)
    allocation = pool.allocate(KIB)
    before = picture(pool)
    provider.fail()

    with pytest.raises(FakeFailure):
        allocation.free()

    assert picture(pool) == before
    assert find(allocation.ptr).id == allocation.id
    allocation.free()
    assert not provider.live


def test_umf_26_a_close_that_fails_upstream_can_be_retried(provider: FakeProvider) -> None:
    pool = Pool(provider)
    pool.free(pool.malloc(KIB))
    provider.fail()

    with pytest.raises(FakeFailure):
        pool.close()

    pool.check()
    pool.close()
    assert not provider.live
    assert pool.stats().reserved_bytes == 0
