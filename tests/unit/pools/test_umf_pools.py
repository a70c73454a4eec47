"""The numbered behaviours 39 to 52 of UMF's pools and providers.

43 to 47 are about slabs and their buckets: `SlabPool`.  The default pool, which cuts by exact
size, has what 45 and 46 protect as well: `trim` keeps what it is told to, down to nothing, and
what is too large for an extent gets one of its own.
"""

from __future__ import annotations

import random
import threading

import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import (
    Capability,
    Growth,
    InvalidArgument,
    NativeError,
    OutOfMemoryError,
    Pool,
    Provider,
    SharedLimit,
    SlabPool,
    find,
)

KIB = 1 << 10
MIB = 1 << 20

#: A bucket with one cell a slab.
SLAB = 64 * KIB


@pytest.mark.parametrize("alignment", [1 << shift for shift in range(23)])
def test_umf_39_sizes_and_alignments(kind, provider: FakeProvider, alignment: int) -> None:
    pool = kind(provider)
    for size in (alignment, 1, alignment + 1, 7, 0):
        ptr = pool.malloc(size, alignment)
        assert ptr % max(alignment, 512) == 0
        pool.check("full")
        pool.free(ptr, size)
    assert pool.stats().live_allocations == 0


def test_umf_40_many_threads(kind, provider: FakeProvider) -> None:
    # given
    pool = kind(provider)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        held = []
        try:
            for _ in range(400):
                if held and chance.random() < 0.5:
                    held.pop(chance.randrange(len(held))).free()
                else:
                    size, alignment = chance.randrange(60_000), 1 << chance.randrange(14)
                    held.append(pool.allocate(size, alignment))
                    assert held[-1].ptr % alignment == 0
                    assert find(held[-1].ptr).id == held[-1].id
        except AssertionError as error:
            errors.append(error)

    # when
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # then
    assert not errors
    now = pool.stats()
    assert now.live_allocations == now.used_bytes == now.requested_bytes == 0
    assert now.allocations == now.frees
    pool.check("full")
    pool.trim()
    assert now.peak_reserved_bytes >= now.peak_used_bytes >= now.peak_requested_bytes > 0


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, 1 << 70])
@pytest.mark.parametrize("alignment", [0, 4096, 1 << 40])
def test_umf_41_sizes_that_nothing_has(kind, size: int, alignment: int) -> None:
    pool = kind(FakeProvider(capacity=1 << 40))
    pool.free(pool.malloc(100))
    before = picture(pool)

    with pytest.raises((OutOfMemoryError, InvalidArgument)):
        pool.malloc(size, alignment)
    with pytest.raises((OutOfMemoryError, InvalidArgument)):
        pool.allocate(size, alignment)

    assert picture(pool) == before


def test_umf_42_freed_memory_is_usable_after_out_of_memory(kind) -> None:
    pool = kind(FakeProvider(capacity=8 * MIB))
    held, error = until_exhausted(lambda: pool.allocate(MIB))

    assert isinstance(error, MemoryError)
    assert error.requested == MIB
    assert len(held) == 8
    held.pop().free()
    held.append(pool.allocate(MIB))
    for allocation in held:
        allocation.free()
    pool.check("full")


def test_umf_43_a_bucket_keeps_as_many_slabs_as_its_capacity(provider: FakeProvider) -> None:
    # given
    pool = SlabPool(provider, slab_size=SLAB, capacity=4)
    pointers = [pool.malloc(SLAB) for _ in range(5)]
    assert pool.stats().provider_allocs == 5

    # when
    for ptr in pointers:
        pool.free(ptr)

    # then
    assert (len(provider.live), provider.counts["free"]) == (4, 1)
    (bucket,) = [each for each in pool.buckets() if each.slabs]
    assert (bucket.cell_bytes, bucket.idle_slabs, bucket.slab_frees) == (SLAB, 4, 1)


def test_umf_44_a_shared_limit_over_two_pools(provider: FakeProvider) -> None:
    # given
    limit = SharedLimit(4 * SLAB)
    pools = [SlabPool(provider, slab_size=SLAB, shared_limit=limit) for _ in range(2)]
    held = [(pool, pool.malloc(SLAB)) for pool in pools for _ in range(4)]

    # when
    for pool, ptr in held:
        pool.free(ptr)

    # then
    assert provider.live_bytes == limit.idle_bytes == 4 * SLAB
    assert [pool.idle_bytes for pool in pools] == [4 * SLAB, 0]
    assert pools[0].trim() == 4 * SLAB
    pools[1].free(pools[1].malloc(SLAB))
    assert [pool.idle_bytes for pool in pools] == [0, SLAB]


@pytest.mark.parametrize("by_count", [False, True])
def test_umf_45_trim_to_three_one_and_no_slabs(provider: FakeProvider, by_count: bool) -> None:
    pool = SlabPool(provider, slab_size=SLAB)
    for ptr in [pool.malloc(SLAB) for _ in range(4)]:
        pool.free(ptr)

    for before, keep in ((4, 3), (3, 1), (1, 0)):
        given = pool.trim(keep_slabs=keep) if by_count else pool.trim(keep * SLAB)
        assert given == (before - keep) * SLAB
        assert pool.stats().reserved_bytes == provider.live_bytes == keep * SLAB


@pytest.mark.parametrize("keep", [3, 1, 0])
def test_umf_45_trim_keeps_what_it_is_told(provider: FakeProvider, keep: int) -> None:
    pool = Pool(provider, growth=Growth(MIB, MIB))
    held = [pool.allocate(MIB) for _ in range(4)]
    for allocation in held:
        allocation.free()

    assert pool.trim(keep * MIB) == (4 - keep) * MIB
    assert pool.stats().reserved_bytes == provider.live_bytes == keep * MIB
    assert pool.stats().provider_frees == 4 - keep


def test_umf_46_large_requests_get_an_extent_of_their_own(provider: FakeProvider) -> None:
    pool = Pool(provider)
    small = pool.malloc(100)

    large = pool.malloc(700 * MIB)

    assert provider.live[large] == 700 * MIB
    pool.free(large)
    assert pool.trim() == 700 * MIB
    pool.free(small)


def test_umf_46_above_the_largest_cell_requests_go_straight_through(
    provider: FakeProvider,
) -> None:
    pool = SlabPool(provider, largest=MIB)
    below = pool.malloc(MIB)
    above = pool.malloc(MIB + 1)
    assert provider.live[above] == MIB + 512
    assert pool.stats().reserved_bytes == provider.live_bytes

    pool.free(above)
    pool.free(below)
    assert list(provider.live.values()) == [MIB]


@pytest.mark.parametrize("granule", [64, 512, 4096])
def test_umf_47_bucket_sizes_ascend(granule: int) -> None:
    pool = SlabPool(FakeProvider(granule=granule))
    sizes = [bucket.cell_bytes for bucket in pool.buckets()]
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (granule, 2 * MIB)
    for size in sizes:
        assert size % granule == 0
        assert size & (size - 1) == 0 or (size // 3) & (size // 3 - 1) == 0


def test_umf_48_counts_follow_every_call(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    first, second = pool.allocate(100), pool.malloc(1000)
    now = pool.stats()
    assert (now.live_allocations, now.requested_bytes, now.used_bytes) == (2, 1100, 1536)
    assert now.free_bytes == now.reserved_bytes - now.used_bytes

    pool.free(second)
    first.free()
    now = pool.stats()
    assert (now.live_allocations, now.requested_bytes, now.allocations, now.frees) == (0, 0, 2, 2)
    assert (now.peak_requested_bytes, now.peak_used_bytes) == (1100, 1536)

    pool.reset_peaks()
    assert pool.stats().peak_used_bytes == 0


def test_umf_49_a_provider_without_its_methods_is_refused_when_made() -> None:
    class Silent(Provider):
        def alloc(self, size: int, alignment: int = 0) -> int:
            return 0

    with pytest.raises(TypeError, match="abstract"):
        Silent()
    with pytest.raises(InvalidArgument, match="does not define split"):

        class Boastful(FakeProvider):
            capabilities = Capability.SPLIT
            split = Provider.split


def test_umf_49_what_an_instance_announces_is_checked_by_the_pool() -> None:
    class Late(Provider):
        def __init__(self) -> None:
            self.capabilities = Capability.ZERO

        def alloc(self, size: int, alignment: int = 0) -> int:
            return 0

        def free(self, ptr: int, size: int) -> None: ...

        def granularity(self, size: int = 0) -> int:
            return 512

    with pytest.raises(InvalidArgument, match="zero"):
        Pool(Late())
    with pytest.raises(InvalidArgument, match="Provider"):
        Pool(42)


def test_umf_50_native_errors_pass_through_layers(provider: FakeProvider) -> None:
    # The errors themselves are per thread in each provider; see their own tests.
    failure = NativeError("alloc", 2, "OUT", "none left")
    provider.native_error = lambda: failure
    inner = Pool(Pool(provider))
    assert inner.provider.native_error() == failure


def test_umf_51_interior_pointers_lead_to_the_base(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    seen = set()
    for _ in range(50):
        allocation = pool.allocate(5000)
        info = find(allocation.ptr + 4321)
        assert (info.base, info.offset, info.pool) == (allocation.ptr, 4321, pool)
        assert (info.memory_type, info.device) == ("device", 0)
        assert info.id not in seen, "an id is never used again, an address is"
        seen.add(info.id)
        allocation.free()


def test_failures_of_the_provider_are_told_from_lack_of_memory(provider: FakeProvider) -> None:
    pool = Pool(provider)
    provider.fail()
    with pytest.raises(FakeFailure):
        pool.malloc(100)
    assert pool.stats().reserved_bytes == 0
