"""UMF's numbered behaviours (reference/umf.md) that say something of OpenCL's memory."""

from __future__ import annotations

import random
import threading

import pytest

import umfpy
from tests.opencl.support import Kind, pattern
from umfpy import (
    CoarseProvider,
    DriverError,
    InvalidArgument,
    NotSupported,
    OpenCLProvider,
    OutOfMemoryError,
    Pool,
    ProxyPool,
)

MIB = 1 << 20


def test_umf_12_upstream_has_no_memory(provider: OpenCLProvider) -> None:
    coarse = CoarseProvider(provider)
    with pytest.raises(OutOfMemoryError):
        coarse.alloc(1 << 45)
    assert coarse.stats()["reserved"] == coarse.stats()["used"] == 0
    coarse.close()


def test_umf_16_ten_pieces_fill_it_exactly(provider: OpenCLProvider) -> None:
    coarse = CoarseProvider(provider, reserve=20 * MIB)
    pieces = [coarse.alloc(2 * MIB) for _ in range(10)]
    assert provider.live_count() == 1
    assert coarse.stats()["used"] == coarse.stats()["reserved"] == 20 * MIB
    for ptr in pieces:
        coarse.free(ptr, 2 * MIB)
    assert len(coarse.map.blocks()) == 1
    coarse.close()


def test_umf_17_small_ones_reuse_what_is_there(provider: OpenCLProvider) -> None:
    coarse = CoarseProvider(provider, reserve=4 * MIB)
    for _ in range(5):
        pieces = [coarse.alloc(64 << 10) for _ in range(64)]
        for ptr in pieces:
            coarse.free(ptr, 64 << 10)
    assert provider.live_count() == 1
    coarse.close()


def test_umf_20_a_pool_on_the_whole_or_half_of_anothers_allocation(
    provider: OpenCLProvider,
) -> None:
    outer = Pool(provider)
    inner = Pool(outer, growth=umfpy.Growth(minimum=MIB, maximum=MIB))
    allocation = inner.allocate(1000)
    data = pattern(1000)
    provider.copy(allocation.ptr, data, 1000)
    assert umfpy.find(allocation.ptr).pool is inner
    seen = bytearray(1000)
    inner.provider.copy(seen, allocation.ptr, 1000)
    assert bytes(seen) == data
    allocation.free()
    inner.close()
    outer.close()


def test_umf_22_eight_and_more_levels(provider: OpenCLProvider) -> None:
    pools = [Pool(provider)]
    for _ in range(9):
        pools.append(Pool(pools[-1]))
    allocation = pools[-1].allocate(500, zero=True)
    assert umfpy.find(allocation.ptr + 499).pool is pools[-1]
    seen = bytearray(b"x" * 500)
    provider.copy(seen, allocation.ptr, 500)
    assert bytes(seen) == bytes(500)
    allocation.free()
    for pool in reversed(pools):
        pool.close()


def test_umf_24_last_byte_yes_one_past_no(provider: OpenCLProvider) -> None:
    pool = Pool(provider)
    allocation = pool.allocate(777)
    assert umfpy.find(allocation.ptr + 776).pool is pool
    assert umfpy.find(allocation.ptr + 777) is None
    allocation.free()
    pool.close()


def test_umf_25_every_allocation_of_several_pools_maps_back(provider: OpenCLProvider) -> None:
    pools = [Pool(provider), ProxyPool(provider), Pool(Pool(provider))]
    held = [(pool, pool.allocate(1 + 37 * n)) for n in range(86) for pool in pools]
    assert len(held) > 256
    for pool, allocation in held:
        found = umfpy.find(allocation.ptr + allocation.size - 1)
        assert (found.pool, found.id, found.base) == (pool, allocation.id, allocation.ptr)
    del held, allocation
    for pool in (*pools, pools[-1].provider.pool):
        pool.close()


def test_umf_26_a_free_that_fails_reaches_the_caller_and_a_retry_succeeds(
    provider: OpenCLProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = ProxyPool(provider)
    allocation = pool.allocate(1000)
    with monkeypatch.context() as patch:

        def fail(origin: int) -> None:
            raise DriverError("clAnything", -9999)

        patch.setattr(provider._source, "give", fail)
        with pytest.raises(DriverError, match="clAnything"):
            allocation.free()
    assert provider.live_count() == 1
    allocation.free()
    assert provider.live_count() == 0
    pool.close()


def test_umf_36_no_ipc(provider: OpenCLProvider) -> None:
    pool = Pool(provider)
    with pool.allocate(64) as allocation, pytest.raises(NotSupported, match="OpenCL"):
        allocation.ipc_handle()
    pool.close()


@pytest.mark.parametrize("alignment", [1, 64, 4096, 1 << 16, 4 * MIB])
def test_umf_39_alignments(provider: OpenCLProvider, alignment: int) -> None:
    pool = Pool(provider)
    for size in (1, alignment, alignment + 1, 12345):
        with pool.allocate(size, alignment=alignment) as allocation:
            assert allocation.ptr % alignment == 0
            data = pattern(size)
            provider.copy(allocation.ptr, data, size)
            seen = bytearray(size)
            provider.copy(seen, allocation.ptr, size)
            assert bytes(seen) == data
    pool.close()


def test_umf_40_many_threads(kind: Kind) -> None:
    provider = kind.provider()
    pool = Pool(provider)
    trouble: list[object] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        held: dict[object, bytes] = {}
        for step in range(60):
            size = chance.randint(1, 20_000)
            allocation = pool.allocate(size, alignment=1 << chance.randint(0, 12))
            data = bytes([seed * 16 + step % 16]) * size
            provider.copy(allocation.ptr, data, size)
            held[allocation] = data
            if step % 3 == 2:
                dropped = chance.choice(list(held))
                seen = bytearray(dropped.size)
                provider.copy(seen, dropped.ptr, dropped.size)
                if bytes(seen) != held.pop(dropped):
                    trouble.append((seed, step))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(1, 6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not trouble
    assert pool.stats().allocations == 300
    assert pool.stats().live_allocations == 0
    pool.check("full")
    pool.close()
    assert provider.live_count() == 0


@pytest.mark.parametrize("size", [(1 << 64) - 1, 1 << 63, 1 << 50])
def test_umf_41_sizes_that_cannot_be(provider: OpenCLProvider, size: int) -> None:
    for source in (Pool(provider), ProxyPool(provider)):
        with pytest.raises(OutOfMemoryError):
            source.allocate(size)
        assert source.stats().reserved_bytes == 0
        source.close()


def test_umf_42_freed_memory_is_usable_after_running_out(provider: OpenCLProvider) -> None:
    pool = Pool(provider, limit_bytes=MIB)
    held = [pool.allocate(MIB // 4) for _ in range(4)]
    with pytest.raises(OutOfMemoryError, match="limit_bytes"):
        pool.allocate(MIB // 4)
    held.pop().free()
    again = pool.allocate(MIB // 4)
    assert again.size == MIB // 4
    del held, again
    pool.close()


def test_umf_51_an_interior_pointer_leads_to_its_base(provider: OpenCLProvider) -> None:
    first, second = provider.alloc(4096), provider.alloc(4096)
    for base in (first, second):
        for address in (base, base + 1, base + 4095):
            found = provider.properties(address)
            assert (found["base"], found["size"]) == (base, 4096)
    assert provider.properties(first + 4096).get("base") != first
    pool = Pool(provider)
    ids = {pool.allocate(10).id for _ in range(100)}
    assert len(ids) == 100
    pool.close()
    for base in (first, second):
        provider.free(base, 4096)


def test_umf_04_05_foreign_and_double_frees_are_refused(provider: OpenCLProvider) -> None:
    ptr = provider.alloc(100)
    for wrong in ((ptr + 1, 99), (ptr, 99), (64, 100)):
        with pytest.raises(InvalidArgument):
            provider.free(*wrong)
    provider.free(ptr, 100)
    with pytest.raises(InvalidArgument):
        provider.free(ptr, 100)
