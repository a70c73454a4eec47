"""SlabPool: cells, slabs, alignment, limits, and what a failing provider leaves."""

from __future__ import annotations

import gc
import itertools
import random
import threading

import pytest

from tests.fakes.capi import DeviceCalls, PortCalls
from tests.fakes.exhaust import until_exhausted
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeProvider
from umfpy import (
    AlignmentError,
    Capability,
    DriverError,
    HostProvider,
    InvalidArgument,
    NotSupported,
    OutOfMemoryError,
    Pool,
    SlabPool,
    find,
    open_ipc,
)
from umfpy.pools.nested import PoolProvider
from umfpy.pools.slab_sizes import bucket_sizes

KIB = 1 << 10
MIB = 1 << 20
A, B = 101, 102


def bucket(pool: SlabPool, cell: int, alignment: int = 512):
    """The statistics of one size of cells."""
    (found,) = [
        each for each in pool.buckets() if (each.cell_bytes, each.alignment) == (cell, alignment)
    ]
    return found


@pytest.fixture
def pool(provider: FakeProvider):
    made = SlabPool(provider)
    yield made
    made.check("full")
    assert made.stats().live_allocations == 0
    made.close()
    assert not provider.live


# Cells.


@pytest.mark.parametrize("size", [0, 1, 511, 512, 513, 1537, 3072, 3073, 40 * KIB, 2 * MIB])
def test_a_request_gets_the_next_larger_cell(pool: SlabPool, size: int) -> None:
    cell = next(each.cell_bytes for each in pool.buckets() if each.cell_bytes >= size)
    with pool.allocate(size) as allocation:
        assert allocation.size == size
        assert (pool.stats().requested_bytes, pool.stats().used_bytes) == (size, cell)
        assert bucket(pool, cell).used_cells == 1
        assert allocation.pool.manager is pool
        assert (find(allocation.ptr).size, find(allocation.ptr).pool) == (size, pool)


def test_a_slab_is_cut_into_equal_cells(pool: SlabPool, provider: FakeProvider) -> None:
    pointers = sorted(pool.malloc(1400) for _ in range(43))  # cells of 1536, 43 reach 64 KiB
    assert list(provider.live.values()) == [43 * 1536]
    assert [high - low for low, high in itertools.pairwise(pointers)] == [1536] * 42
    assert bucket(pool, 1536).free_cells == 0
    pointers.append(pool.malloc(1400))
    assert len(provider.live) == 2
    for ptr in pointers:
        pool.free(ptr, 1400)


def test_the_cells_are_counted_from_the_real_slab() -> None:
    # given a provider that gives more than the least that a slab needs
    provider = FakeProvider(unit=2 * MIB)
    pool = SlabPool(provider)
    # when as many are taken as it really holds
    held = [pool.allocate(3000) for _ in range(2 * MIB // 3072)]
    # then one slab has them all
    assert len(provider.live) == 1
    assert bucket(pool, 3072).cells == len(held)
    assert {find(each.ptr).base for each in held} == {each.ptr for each in held}
    held.append(pool.allocate(3000))
    assert len(provider.live) == 2
    pool.check()


@pytest.mark.parametrize("order", range(4))
def test_cells_stay_in_their_places_whatever_is_freed_first(pool: SlabPool, order: int) -> None:
    chance = random.Random(order)
    held: list[int] = []
    for _ in range(400):
        if held and chance.random() < 0.5:
            pool.free(held.pop(chance.randrange(len(held))))
        else:
            held.append(pool.malloc(chance.choice((100, 700, 1300, 5000)), stream=0))
        pool.check("full")
    for ptr in held:
        pool.free(ptr)


def test_two_buckets_never_share_a_slab(pool: SlabPool) -> None:
    first = pool.malloc(64 * KIB)
    pool.free(first)
    small = pool.malloc(512)
    assert small != first
    assert len(pool.provider.live) == 2
    pool.free(small)


@pytest.mark.parametrize("granule", [1, 64, 256, 512, 4096, 2 * MIB])
def test_sizes_are_whole_granules(granule: int) -> None:
    sizes = bucket_sizes(granule, 4 * MIB, granule)
    assert list(sizes) == sorted(set(sizes))
    assert sizes[0] == granule
    assert sizes[-2] < 4 * MIB <= sizes[-1]
    for size in sizes:
        assert size % granule == 0
        assert size & (size - 1) == 0 or (size % 3 == 0 and (size // 3) & (size // 3 - 1) == 0)


def test_smallest_and_largest_bound_the_buckets(provider: FakeProvider) -> None:
    pool = SlabPool(provider, smallest="2KiB", largest="10KiB", slab_size="16KiB")
    assert [each.cell_bytes for each in pool.buckets()] == [2048, 3072, 4096, 6144, 8192, 12288]
    with pool.allocate(1), pool.allocate(10 * KIB), pool.allocate(10 * KIB + 1):
        assert sorted(provider.live.values()) == [10 * KIB + 512, 16 * KIB, 24 * KIB]


@pytest.mark.parametrize(
    "wrong",
    [
        {"slab_size": 0},
        {"slab_size": "much"},
        {"largest": -1},
        {"largest": "4GiB"},
        {"smallest": "4MiB"},
        {"capacity": -1},
        {"capacity": 1.5},
        {"capacity": True},
        {"limit_bytes": "x"},
    ],
)
def test_options_that_are_none(provider: FakeProvider, wrong: dict) -> None:
    with pytest.raises(InvalidArgument):
        SlabPool(provider, **wrong)


# Alignment.


@pytest.mark.parametrize("shift", range(27))
@pytest.mark.parametrize("size", [1, 700, 3 * KIB])
def test_alignments(pool: SlabPool, shift: int, size: int) -> None:
    held = [pool.allocate(size, 1 << shift) for _ in range(5)]
    assert all(each.ptr % (1 << shift) == 0 for each in held)
    pool.check("full")


def test_aligned_cells_share_slabs_too(pool: SlabPool, provider: FakeProvider) -> None:
    held = [pool.allocate(100, 4096) for _ in range(16)]
    assert list(provider.live.values()) == [64 * KIB]
    assert bucket(pool, 4096, 4096).used_cells == len(held)
    assert bucket(pool, 4096).used_cells == 0


@pytest.mark.parametrize("alignment", [3, 4097, (1 << 40) + 1])
def test_alignments_that_are_no_power_of_two(pool: SlabPool, alignment: int) -> None:
    before = picture(pool)
    with pytest.raises(AlignmentError):
        pool.malloc(100, alignment)
    assert picture(pool) == before


def test_a_provider_that_does_not_align_is_found_out() -> None:
    provider = FakeProvider(offset=64)  # of every address
    pool = SlabPool(provider)
    with pytest.raises(AlignmentError, match="when asked for"):
        pool.malloc(100)
    assert not provider.live
    pool.check()


# Limits and failures.


def test_a_limit_holds_for_all_buckets_together(provider: FakeProvider) -> None:
    # given
    pool = SlabPool(provider, limit_bytes=256 * KIB)
    idle = [pool.allocate(size) for size in (512, 1024, 2048)]
    large = pool.allocate(64 * KIB)
    # when the last of four slabs is held, then there is no fifth
    with pytest.raises(OutOfMemoryError) as caught:
        pool.allocate(8 * KIB)
    assert (caught.value.limit, caught.value.requested) == (256 * KIB, 8 * KIB)
    with pytest.raises(OutOfMemoryError, match="limit_bytes"):
        pool.allocate(3 * MIB)
    # but idle slabs make room
    idle.pop().free()
    pool.allocate(8 * KIB).free()
    assert provider.live_bytes <= 256 * KIB
    large.free()


def test_short_of_memory_a_slab_has_one_cell() -> None:
    provider = FakeProvider(capacity=68 * KIB)
    pool = SlabPool(provider)
    held, _ = until_exhausted(lambda: pool.allocate(4 * KIB))
    assert len(held) == 17
    assert bucket(pool, 4096).slabs == 2
    pool.check()


def test_neighbours_and_other_buckets_give_back_first() -> None:
    provider = FakeProvider(capacity=4 * MIB)
    idle, pool = Pool(provider), SlabPool(provider)
    idle.free(idle.malloc(MIB))
    pool.allocate(MIB).free()
    held = [pool.allocate(2 * MIB), pool.allocate(2 * MIB)]
    assert idle.stats().reserved_bytes == 0
    assert provider.live_bytes == 4 * MIB
    assert len(held) == 2


def test_a_request_beyond_the_device_costs_nobody_anything() -> None:
    provider = FakeProvider(capacity=4 * MIB)
    pool = SlabPool(provider)
    pool.allocate(MIB).free()
    for size in (5 * MIB, 1 << 62, (1 << 64) - 1, 1 << 70):
        with pytest.raises(OutOfMemoryError):
            pool.allocate(size)
    assert provider.live_bytes == MIB


@pytest.mark.parametrize("nth", range(1, 9))
def test_a_failing_call_changes_nothing(streamed: FakeProvider, nth: int) -> None:
    # given
    pool = SlabPool(streamed, capacity=1)
    ptr = pool.malloc(64 * KIB, stream=A)
    streamed.fail(nth, DriverError("call", 1))
    # when
    for size in (100, 64 * KIB, 3 * MIB, 0):
        before = picture(pool)[0].live_allocations
        try:
            other = pool.malloc(size, stream=B, zero=True)
        except DriverError:
            assert pool.stats().live_allocations == before
            continue
        try:
            pool.free(other)
        except DriverError:
            assert pool.stats().live_allocations == before + 1
            pool.free(other)
        assert pool.stats().live_allocations == before
        pool.check("full")
    # then
    streamed.recover()
    pool.free(ptr)
    pool.close()
    assert not streamed.live


def test_a_slab_that_cannot_go_is_kept_and_goes_later(provider: FakeProvider) -> None:
    pool = SlabPool(provider, capacity=0)
    ptr = pool.malloc(100)
    provider.fail(1, DriverError("free", 1))
    pool.free(ptr)
    assert len(provider.live) == 1
    pool.check()
    pool.buckets()
    assert not provider.live


def test_a_trim_that_fails_keeps_the_rest(provider: FakeProvider) -> None:
    pool = SlabPool(provider)
    for ptr in [pool.malloc(64 * KIB) for _ in range(3)]:
        pool.free(ptr)
    provider.fail(2, DriverError("free", 1))
    with pytest.raises(DriverError):
        pool.trim()
    pool.check()
    assert pool.stats().reserved_bytes == provider.live_bytes == 128 * KIB
    assert pool.trim() == 128 * KIB


# Streams.


def test_a_cell_is_used_again_on_its_stream_at_once(streamed: FakeProvider) -> None:
    pool = SlabPool(streamed)
    first, other = pool.allocate(4 * KIB, stream=A), pool.allocate(4 * KIB, stream=B)
    waits = streamed.counts["synchronize"]
    ptr = first.ptr
    first.free()
    assert pool.malloc(4 * KIB, stream=A) == ptr
    pool.free(ptr, stream=B)
    assert pool.malloc(4 * KIB, stream=B) == ptr
    assert streamed.counts["synchronize"] == waits
    pool.free(ptr)
    other.free()


def test_another_stream_gets_it_after_a_wait(streamed: FakeProvider) -> None:
    # given
    pool = SlabPool(streamed)
    first, keep = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=B)
    pool.free(first)
    # when
    before = [pool.malloc(4 * KIB, stream=B) for _ in range(14)]
    pool.synchronize()
    after = pool.malloc(4 * KIB, stream=B)
    # then
    assert first not in before
    assert after == first
    assert len(streamed.live) == 1
    for ptr in (*before, keep, after):
        pool.free(ptr)


def test_a_bucket_waits_before_it_grows(streamed: FakeProvider) -> None:
    pool = SlabPool(streamed)
    first = pool.malloc(64 * KIB, stream=A)
    pool.free(first)
    assert pool.malloc(64 * KIB, stream=B) == first
    assert streamed.counts == {"alloc": 1, "synchronize": 1}
    pool.free(first)


def test_a_slab_goes_after_the_device_was_waited_for(streamed: FakeProvider) -> None:
    pool = SlabPool(streamed, capacity=0)
    pool.free(pool.malloc(100, stream=A))
    assert [call[0] for call in streamed.calls] == ["alloc", "synchronize", "free"]


def test_one_wait_serves_all_buckets(streamed: FakeProvider) -> None:
    pool = SlabPool(streamed)
    for size in (100, 1000, 5000):
        pool.free(pool.malloc(size, stream=A))
    pool.synchronize()
    assert streamed.counts["synchronize"] == 1


# Faces: zero, C, IPC, nesting, the end.


@pytest.mark.parametrize("whole", [True, False])
def test_zero(whole: bool) -> None:
    provider = HostProvider()
    pool = SlabPool(provider, zero=whole)
    for size in (100, 5000, 3 * MIB):
        ptr = pool.malloc(size)
        provider.copy(ptr, b"x" * size, size)
        pool.free(ptr)
        with pool.allocate(size, zero=not whole) as allocation:
            seen = bytearray(size)
            provider.copy(seen, allocation.ptr, size)
            assert not any(seen)


def test_zero_needs_a_provider_that_can(pool: SlabPool) -> None:
    with pytest.raises(NotSupported):
        pool.malloc(100, zero=True)
    with pytest.raises(InvalidArgument):
        SlabPool(pool.provider, zero=True)


def test_c_callers(streamed: FakeProvider) -> None:
    pool = SlabPool(streamed)
    calls = PortCalls(pool)
    pointers = [calls.malloc(size) for size in (1, 5000, 3 * MIB)]
    assert pool.stats().requested_bytes == 5001 + 3 * MIB
    assert all(find(ptr).pool is pool for ptr in pointers)
    for ptr in pointers:
        calls.free(ptr)
    assert (calls.refused, pool.stats().live_allocations) == (0, 0)
    calls.free(pointers[0])
    assert calls.refused == 1
    assert pool.c_interface() is pool.c_interface()


def test_c_callers_with_streams(streamed: FakeProvider) -> None:
    # given
    pool = SlabPool(streamed)
    calls = DeviceCalls(pool, 63)
    one, two = calls.malloc(4 * KIB, stream=A), calls.malloc(4 * KIB, stream=A)
    other = calls.malloc(4 * KIB, stream=B)
    # when one is freed on another stream, and one was used on several
    calls.free(one, 4 * KIB, stream=B)
    calls.record(two, stream=B)
    calls.free(two, 4 * KIB, stream=A)
    # then
    again = [
        calls.malloc(4 * KIB, stream=B),
        calls.malloc(4 * KIB, stream=A),
        calls.malloc(4 * KIB, stream=B),
    ]
    assert again[0] == one
    assert two not in again
    pool.synchronize()
    assert calls.malloc(4 * KIB, stream=B) == two
    for ptr in (*again, two, other):
        calls.free(ptr, 4 * KIB, stream=A)
    assert pool.stats().live_allocations == 0


def test_a_bucket_alone_cannot_be_misused(pool: SlabPool) -> None:
    with pool.allocate(100) as allocation:
        part = allocation.pool
        with pytest.raises(NotSupported):
            part.c_interface()
        with part.allocate(5000) as other:
            assert bucket(pool, 6144).used_cells == 1
            assert pool.owns(other.ptr)
        pool.free(part.malloc(700))


def test_a_cell_is_shared_with_its_slab_as_the_root() -> None:
    provider = HostProvider(shared=True)
    pool = SlabPool(provider)
    first, second = pool.allocate(2 * KIB), pool.allocate(2 * KIB)
    provider.copy(second.ptr, b"second", 6)
    with open_ipc(first.ipc_handle()) as one, open_ipc(second.ipc_handle()) as two:
        assert two.ptr - one.ptr == second.ptr - first.ptr
        assert bytes(two.copy_to_host())[:6] == b"second"


def test_frees_that_are_refused(pool: SlabPool) -> None:
    ptr, owned = pool.malloc(700), pool.allocate(700)
    gone = pool.malloc(3 * MIB)
    pool.free(gone)
    for wrong in (ptr + 1, ptr + 1024, owned.ptr, gone, 1, (1 << 64) - 1, 1 << 64, -1, "0", 1.0):
        before = picture(pool)
        with pytest.raises(InvalidArgument):
            pool.free(wrong)
        assert picture(pool) == before
    for size in (0, 699, 701, 1024, 1 << 64):
        with pytest.raises(InvalidArgument):
            pool.free(ptr, size)
    pool.free(0)
    pool.free(None)
    pool.free(ptr, 700)
    owned.free()


def test_nested_pools(provider: FakeProvider) -> None:
    bottom = SlabPool(provider)
    middle = Pool(bottom)
    top = SlabPool(middle)
    allocation = top.allocate(5000)
    assert find(allocation.ptr).pool is top
    assert bottom.owns(allocation.ptr)
    allocation.free()
    for pool in (top, middle, bottom):
        pool.close()
    assert not provider.live


def test_live_allocations_outlive_their_pool(provider: FakeProvider) -> None:
    allocation = SlabPool(provider).allocate(100)
    gc.collect()
    assert len(provider.live) == 1
    with pytest.raises(InvalidArgument, match="gone"):
        allocation.pool.malloc(1)
    del allocation
    assert not provider.live


def test_a_closed_pool_gives_back_with_the_last_free(provider: FakeProvider) -> None:
    pool = SlabPool(provider)
    owned, raw, large = pool.allocate(100), pool.malloc(200), pool.allocate(3 * MIB)
    with pytest.warns(ResourceWarning, match="3 live allocations"):
        pool.close()
    with pytest.raises(InvalidArgument, match="closed"):
        pool.malloc(1)
    large.free()
    pool.free(raw)
    del owned
    assert not provider.live
    pool.close()


def test_threads_share_a_pool() -> None:
    # given
    pool = SlabPool(FakeProvider(capabilities=Capability.STREAMS), capacity=1)
    trouble: list[BaseException] = []

    def work(seed: int) -> None:
        chance, held = random.Random(seed), []
        try:
            for _ in range(300):
                if held and chance.random() < 0.5:
                    held.pop(chance.randrange(len(held))).free()
                else:
                    size, boundary = chance.randrange(100_000), 1 << chance.randrange(14)
                    held.append(pool.allocate(size, boundary, stream=seed % 3))
                    assert held[-1].ptr % boundary == 0
        except BaseException as error:
            trouble.append(error)
            raise

    # when
    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # then
    assert not trouble
    pool.check("full")
    pool.synchronize()
    assert all(each.idle_slabs <= 1 and not each.used_cells for each in pool.buckets())
    pool.trim()
    assert not pool.provider.live


def test_cells_do_not_split_for_a_pool_above() -> None:
    pool = SlabPool(FakeProvider())
    above = PoolProvider(pool)
    ptr = above.alloc(1024)

    assert Capability.SPLIT not in above.capabilities
    with pytest.raises(NotSupported, match="SPLIT"):
        above.split(ptr, 1024, 512)
    above.free(ptr, 1024)
