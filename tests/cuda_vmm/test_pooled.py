"""CudaAsyncProvider: memory of the driver's own pools."""

from __future__ import annotations

import pytest
from cuda.bindings import driver

import umfpy
from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.cuda import CudaAsyncProvider
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.pooled_driver import DriverPool

MIB = 1 << 20
UNKNOWN = 999


@pytest.fixture
def pooled(emu):
    provider = CudaAsyncProvider()
    yield provider
    assert provider.live_count() == 0
    provider.close()


def test_memory_is_ready_for_every_stream(pooled, emu):
    emu.reset_calls()
    ptr = pooled.alloc(MIB)
    assert emu.calls["cuMemAllocFromPoolAsync"] == emu.calls["cuStreamSynchronize"] == 1
    emu.reset_calls()
    pooled.free(ptr, MIB)
    assert emu.calls["cuCtxSynchronize"] == emu.calls["cuMemFreeAsync"] == 1


def test_who_has_a_stream_waits_for_nothing(pooled, emu):
    emu.reset_calls()
    ptr = pooled.alloc(MIB, 0, pooled.stream)
    pooled.zero(ptr, MIB, pooled.stream)
    pooled.free(ptr, MIB, pooled.stream)
    assert not [name for name in emu.calls if "Synchronize" in name]


def test_release_threshold(emu):
    """Without one the pool keeps nothing over a wait; with one it does, until it is trimmed."""
    for threshold, kept in ((None, 0), ("64MiB", 64 * MIB)):
        provider = CudaAsyncProvider(release_threshold=threshold)
        ptr = provider.alloc(100 * MIB)
        assert provider.stats().used == provider.stats().reserved == 100 * MIB
        provider.free(ptr, 100 * MIB)
        provider.synchronize()
        now = provider.stats()
        assert (now.used, now.reserved) == (0, kept)
        assert (now.used_high, now.reserved_high) == (100 * MIB, 100 * MIB)
        provider.reset_highs()
        assert provider.stats().reserved_high == kept
        assert provider.trim("32MiB") == max(kept - 32 * MIB, 0)
        provider.trim()
        assert provider.stats().reserved == 0
        provider.close()


def test_trim_keeps_what_is_used(pooled):
    ptr = pooled.alloc(10 * MIB)
    assert pooled.trim() == 0
    pooled.zero(ptr, 10 * MIB)
    pooled.free(ptr, 10 * MIB)


def test_alignment_beyond_what_the_driver_gives(pooled, emu):
    small = pooled.alloc(100)
    ptrs = [pooled.alloc(1000, alignment) for alignment in (512, 4096, 2 * MIB, 64 * MIB)]
    for ptr, alignment in zip(ptrs, (512, 4096, 2 * MIB, 64 * MIB), strict=True):
        assert ptr % alignment == 0
        pooled.free(ptr, 1000)
    large = pooled.alloc(4 * MIB, 2 * MIB)
    assert large % (2 * MIB) == 0
    assert pooled.stats().used < 5 * MIB
    pooled.free(large, 4 * MIB)
    pooled.free(small, 100)


def test_an_address_that_is_not_aligned_goes_back(pooled, monkeypatch):
    """A driver may align large allocations to less than the emulated one does."""
    first = pooled.alloc(MIB // 4)
    monkeypatch.setattr("umfpy.providers.cuda.native.LIKELY_ALIGNMENT", 4096)
    before = pooled.stats().used
    ptr = pooled.alloc(4096, 4096)
    second = pooled.alloc(512)
    third = pooled.alloc(4096, 4096)
    assert third % 4096 == ptr % 4096 == 0
    for at, size in ((ptr, 4096), (second, 512), (third, 4096)):
        pooled.free(at, size)
    assert pooled.stats().used == before
    pooled.free(first, MIB // 4)


def test_the_default_pool(emu):
    provider = CudaAsyncProvider(pool="default", release_threshold="8MiB")
    assert Capability.IPC not in provider.capabilities
    ptr = provider.alloc(4 * MIB)
    with pytest.raises(NotSupported, match="not the provider's own"):
        provider.ipc_export(ptr, 4 * MIB)
    provider.free(ptr, 4 * MIB)
    provider.close()
    assert emu.calls["cuMemPoolDestroy"] == 0
    again = CudaAsyncProvider(pool="default")
    again.trim()
    assert again.stats().reserved == 0
    DriverPool(again._driver, again.pool, owned=False).set_release_threshold(0)
    again.close()


def test_a_pool_of_the_callers(emu):
    maker = CudaDriver()
    pool = DriverPool.create(maker, 0, shareable=False)
    for form in (pool.handle, driver.CUmemoryPool(pool.handle)):
        provider = CudaAsyncProvider(pool=form)
        assert provider.pool == pool.handle
        ptr = provider.alloc(MIB)
        assert pool.stats().used == MIB
        provider.free(ptr, MIB)
        provider.close()
    pool.close()
    pool.close()
    with pytest.raises(InvalidArgument, match='"default" or'):
        CudaAsyncProvider(pool="other")


def test_out_of_memory(pooled):
    with pytest.raises(OutOfMemoryError, match=f"of {4 << 30} bytes free") as caught:
        pooled.alloc(5 << 30)
    assert (caught.value.requested, caught.value.provider) == (5 << 30, "cuda_async")
    assert pooled.native_error().call == "cuMemAllocFromPoolAsync"
    ptr = pooled.alloc(4 << 30)
    pooled.free(ptr, 4 << 30)


def test_a_device_without_pools(emu, monkeypatch):
    original = CudaDriver.call
    missing = []

    def call(self, name, *args):
        if name == "cuDeviceGetAttribute" and args[0] in missing:
            return 0
        return original(self, name, *args)

    monkeypatch.setattr(CudaDriver, "call", call)
    attributes = driver.CUdevice_attribute
    missing.append(attributes.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES)
    provider = CudaAsyncProvider()
    assert Capability.IPC not in provider.capabilities
    provider.free(provider.alloc(4096), 4096)
    provider.close()
    missing.append(attributes.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
    with pytest.raises(NotSupported, match=r"no memory pools .*MEMORY_POOLS_SUPPORTED"):
        CudaAsyncProvider()


def test_what_the_driver_does_not_take_back_is_still_there(pooled, emu):
    ptr = pooled.alloc(4096)
    emu.fail("cuMemFreeAsync", error=UNKNOWN)
    with pytest.raises(DriverError, match="cuMemFreeAsync"):
        pooled.free(ptr, 4096)
    assert pooled.live_count() == 1
    pooled.free(ptr, 4096)


def test_memory_that_is_not_ready_goes_back(pooled, emu):
    emu.fail("cuStreamSynchronize", error=UNKNOWN)
    emu.fail("cuMemFreeAsync", error=UNKNOWN)
    with pytest.raises(DriverError, match="cuStreamSynchronize"):
        pooled.alloc(4096)
    assert pooled.stats().used == 4096
    pooled.trim()
    assert pooled.stats().used == 0


def test_a_pool_of_another_process_is_imported_once(emu):
    exporter, importer = CudaAsyncProvider(), CudaAsyncProvider()
    ptrs = [exporter.alloc(4096) for _ in range(3)]
    payloads = [exporter.ipc_export(ptr, 4096) for ptr in ptrs]
    emu.reset_calls()
    opened = [importer.ipc_open(payload) for payload in payloads]
    assert emu.calls["cuMemPoolImportFromShareableHandle"] == 1
    for number, at in enumerate(opened):
        importer.copy(at, bytes([number]), 1)
    for number, ptr in enumerate(ptrs):
        seen = bytearray(1)
        exporter.copy(seen, ptr, 1)
        assert seen[0] == number
    for at in opened:
        importer.ipc_close(at, 4096)
    assert emu.calls["cuMemPoolDestroy"] == 1
    for ptr, payload in zip(ptrs, payloads, strict=True):
        exporter.ipc_release(payload)
        exporter.free(ptr, 4096)
    importer.close()
    exporter.close()


def test_an_aligned_allocation_is_shared_where_it_is(emu):
    provider = CudaAsyncProvider()
    hole = provider.alloc(512)
    ptr = provider.alloc(1000, 4096)
    provider.copy(ptr, b"aligned", 7)
    payload = provider.ipc_export(ptr, 1000)
    at = provider.ipc_open(payload)
    seen = bytearray(7)
    provider.copy(seen, at, 7)
    assert seen == b"aligned"
    provider.ipc_close(at, 1000)
    provider.free(ptr, 1000)
    provider.free(hole, 512)
    provider.close()


def test_a_pool_on_it(emu):
    provider = CudaAsyncProvider(release_threshold="1GiB")
    with umfpy.ProxyPool(provider) as pool:
        blocks = [pool.allocate(3 * MIB) for _ in range(20)]
        del blocks
    provider.close()
    assert umfpy.CudaAsyncProvider is CudaAsyncProvider


def test_dropped_without_close(emu):
    provider = CudaAsyncProvider()
    provider.free(provider.alloc(4096), 4096)
    del provider
