"""What may be asked of a pool, and what every refusal leaves as it was."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeProvider
from umfpy import (
    AlignmentError,
    Allocation,
    InvalidArgument,
    NotSupported,
    OutOfMemoryError,
    Pool,
    ProxyPool,
    StaleHandle,
)

GRANULE = 512
MIB = 1 << 20


@pytest.fixture
def pool(kind, provider: FakeProvider):
    made = kind(provider)
    yield made
    made.check("full")
    assert made.stats().live_allocations == 0


class Unchanged:
    """Inside it the pool may refuse, but nothing changes."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def __enter__(self) -> None:
        self.before = picture(self.pool)

    def __exit__(self, *exc_info: object) -> None:
        assert picture(self.pool) == self.before
        self.pool.check("full")


@pytest.mark.parametrize("size", [0, 1, GRANULE - 1, GRANULE, GRANULE + 1, (1 << 32) + 1])
def test_sizes(pool: Pool, size: int) -> None:
    with pool.allocate(size) as allocation:
        now = pool.stats()
        assert (allocation.size, now.requested_bytes) == (size, size)
        assert now.used_bytes == max(-(-size // GRANULE), 1) * GRANULE


def test_zero_bytes_are_distinct_and_freeable(pool: Pool) -> None:
    pointers = [pool.malloc(0) for _ in range(10)]
    assert len(set(pointers)) == 10
    for ptr in pointers:
        pool.free(ptr, 0)


@pytest.mark.parametrize("size", [-1, -(1 << 64), 1.5, "1", None, [1]])
def test_sizes_that_are_none(pool: Pool, size: object) -> None:
    with Unchanged(pool), pytest.raises(InvalidArgument, match="size"):
        pool.malloc(size)
    with Unchanged(pool), pytest.raises(InvalidArgument, match="size"):
        pool.allocate(size)


@pytest.mark.parametrize("kind_of_integer", [np.int32, np.int64, np.uint64])
def test_integers_of_numpy(pool: Pool, kind_of_integer: type) -> None:
    ptr = pool.malloc(kind_of_integer(5 * MIB), kind_of_integer(4096))
    pool.free(np.uint64(ptr), kind_of_integer(5 * MIB))


@pytest.mark.parametrize("shift", range(27))
def test_alignments(pool: Pool, shift: int) -> None:
    with pool.allocate(3 * GRANULE, 1 << shift) as allocation:
        assert allocation.ptr % (1 << shift) == 0


@pytest.mark.parametrize("alignment", [3, 6, 1000, (1 << 40) + 1])
def test_alignments_that_are_no_power_of_two(pool: Pool, alignment: int) -> None:
    with Unchanged(pool), pytest.raises(AlignmentError):
        pool.malloc(100, alignment)


@pytest.mark.parametrize("alignment", [-1, 1 << 64, 0.5, "8"])
def test_alignments_that_are_no_size(pool: Pool, alignment: object) -> None:
    with Unchanged(pool), pytest.raises(InvalidArgument, match="alignment"):
        pool.malloc(100, alignment)


@pytest.mark.parametrize("stream", [-1, 1 << 64, "default", object()])
def test_streams_that_are_none(pool: Pool, stream: object) -> None:
    with Unchanged(pool), pytest.raises(InvalidArgument, match="stream"):
        pool.malloc(100, stream=stream)


def test_frees_that_are_refused(pool: Pool) -> None:
    ptr, gone = pool.malloc(5000), pool.malloc(5000)
    owned = pool.allocate(100)
    pool.free(gone)

    for wrong in (gone, ptr + 1, ptr + GRANULE, ptr - 1, 1, (1 << 64) - 1, owned.ptr):
        with Unchanged(pool), pytest.raises(InvalidArgument):
            pool.free(wrong)
    for size in (0, 4999, 5001, 5120, -1, 1 << 63, (1 << 64) - 1, 1 << 64):
        with Unchanged(pool), pytest.raises(InvalidArgument):
            pool.free(ptr, size)
    for wrong in (-1, 1 << 64, "0", 1.0):
        with Unchanged(pool), pytest.raises(InvalidArgument):
            pool.free(wrong)
    with Unchanged(pool):
        pool.free(0)
        pool.free(None)
    pool.free(ptr, 5000, stream=0)
    owned.free()


def test_a_pointer_of_another_pool_is_refused(kind, pool: Pool) -> None:
    other = kind(FakeProvider())
    ptr = other.malloc(100)
    with Unchanged(pool), Unchanged(other), pytest.raises(InvalidArgument, match="somewhere else"):
        pool.free(ptr)
    other.free(ptr)


def test_an_allocation_is_freed_once(pool: Pool) -> None:
    allocation = pool.allocate(100)
    allocation.free()

    with Unchanged(pool), pytest.raises(StaleHandle):
        allocation.free()
    assert allocation.freed
    assert "freed" in repr(allocation)


def test_an_allocation_is_never_copied(pool: Pool) -> None:
    allocation = pool.allocate(100)
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with Unchanged(pool), pytest.raises((TypeError, NotSupported)):
            duplicate(allocation)
    allocation.free()


def test_allocations_come_from_pools_only() -> None:
    with pytest.raises(InvalidArgument):
        Allocation()
    empty = Allocation.__new__(Allocation)
    assert empty.pool is None
    with pytest.raises(StaleHandle):
        empty.free()
    for attribute in ("provider", "id"):
        with pytest.raises(AttributeError):
            getattr(empty, attribute)


def test_a_pool_before_its_initialisation_refuses() -> None:
    pool = Pool.__new__(Pool)
    assert pool.closed
    with pytest.raises(InvalidArgument, match="closed"):
        pool.malloc(1)
    with pytest.raises(InvalidArgument, match="closed"):
        pool.free(1)


def test_a_pool_is_initialised_once(pool: Pool, provider: FakeProvider) -> None:
    with pytest.raises(InvalidArgument, match="twice"):
        pool.__init__(provider)


def test_a_granule_too_large_for_the_structure_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="granule"):
        Pool(FakeProvider(granule=1 << 31))


def test_zero_on_request_needs_a_provider_that_can(pool: Pool) -> None:
    with Unchanged(pool), pytest.raises(NotSupported):
        pool.malloc(100, zero=True)
    with Unchanged(pool), pytest.raises(NotSupported):
        pool.allocate(100, zero=True)


def test_zeroed_memory_that_fails_is_not_kept(streamed: FakeProvider) -> None:
    pool = Pool(streamed, zero=True)
    pool.free(pool.malloc(100))
    for allocate in (pool.malloc, pool.allocate):
        streamed.fail()
        with pytest.raises(Exception, match="as told"):
            allocate(100)
        assert pool.stats().live_allocations == 0
    ptr = pool.malloc(77, stream=5)
    assert streamed.calls[-1] == ("zero", ptr, 77, 5)
    pool.free(ptr)


@pytest.mark.parametrize("limited", [Pool, ProxyPool])
def test_limit_bytes(limited: type, provider: FakeProvider) -> None:
    # given
    pool = limited(provider, limit_bytes="1MiB")

    # when
    held, error = until_exhausted(lambda: pool.allocate(64 << 10))

    # then
    assert (len(held), error.limit) == (16, MIB)
    assert "limit" in str(error)
    assert pool.stats().reserved_bytes == provider.live_bytes == MIB
    pool.limit_bytes = None
    held.append(pool.allocate(64 << 10))
    pool.limit_bytes = 0
    held.pop().free()
    with pytest.raises(OutOfMemoryError):
        pool.allocate(4 * MIB)
    for allocation in held:
        allocation.free()


@pytest.mark.parametrize("limit", ["much", -1, "1.0001KiB"])
def test_limits_that_are_none(provider: FakeProvider, limit: object) -> None:
    with pytest.raises(InvalidArgument):
        Pool(provider, limit_bytes=limit)


def test_a_provider_that_does_not_align_is_found_out() -> None:
    class Crooked(FakeProvider):
        def alloc(self, size: int, alignment: int = 0) -> int:
            return super().alloc(size, 0) + self.granule

        def free(self, ptr: int, size: int) -> None:
            super().free(ptr - self.granule, size)

    # given a provider whose memory starts where it likes
    provider = Crooked()
    pool = Pool(provider)
    # when more alignment is asked for than it happens to give, then it is named, and nothing kept
    with pytest.raises(AlignmentError, match="when asked for an alignment"):
        pool.allocate(4096, alignment=1 << 20)
    assert pool.stats().reserved_bytes == 0
    assert not provider.live
