"""Pools beside a manager that captures a stream of the emulated driver: the capture ends well."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.manager.device import SIZE, Device
from tests.manager.support import MIB
from umfpy import (
    CaptureWouldBreak,
    CoarseProvider,
    CudaAsyncProvider,
    CudaProvider,
    CudaVmmProvider,
    HostProvider,
    InvalidArgument,
    MemoryManager,
    Pool,
    Provider,
    ProxyPool,
    SlabPool,
    view,
)
from umfpy.pools.base import ProviderPool

PROVIDERS: dict[str, Callable[[], Provider]] = {
    "device": CudaProvider,
    "pinned": lambda: CudaProvider(memory_type="host"),
    "managed": lambda: CudaProvider(memory_type="managed"),
    "virtual": CudaVmmProvider,
    "pooled": CudaAsyncProvider,
    "coarse": lambda: CoarseProvider(CudaProvider()),
}
POOLS: dict[str, Callable[[Provider], ProviderPool]] = {
    "pool": Pool,
    "proxy": ProxyPool,
    "slabs": SlabPool,
}


@pytest.mark.parametrize("mode", ["relaxed", "thread-local", "global"])
@pytest.mark.parametrize("pool_kind", POOLS)
@pytest.mark.parametrize("kind", PROVIDERS)
def test_whatever_is_asked_of_a_pool_the_capture_stays_whole(
    gpu: Device, kind: str, pool_kind: str, mode: str
) -> None:
    provider, manager = PROVIDERS[kind](), gpu.manager()
    pool = POOLS[pool_kind](provider)
    idle = [pool.allocate(3 * MIB, stream=stream) for stream in gpu.streams]
    late, freed = pool.allocate(SIZE), pool.malloc(SIZE)
    manager.mode("persistent")
    manager.reserve(SIZE, stream=gpu.streams[0]).release()
    with manager.capture(gpu.streams[0], mode) as graph:
        with manager.reserve(SIZE, stream=gpu.streams[0]) as handle:
            gpu.set(manager.storage(handle).ptr, 7, gpu.streams[0])
        idle.clear()
        pool.free(freed)
        assert pool.trim() == 0
        with pytest.raises(CaptureWouldBreak):
            pool.synchronize()
        if mode == "relaxed":
            late = pool.allocate(5 * MIB)
        else:
            with pytest.raises(CaptureWouldBreak):
                pool.allocate(5 * MIB)
        with pytest.warns(ResourceWarning, match="1 live"):
            pool.close()
    late.free()
    graph.launch(gpu.streams[0])
    gpu.wait(gpu.streams[0])
    assert gpu.read(manager.storage(graph.pins[0]).ptr) == b"\x07" * SIZE
    graph.close()
    manager.close()
    del pool
    provider.close()


def test_a_view_for_the_host_does_not_wait_during_a_capture(gpu: Device) -> None:
    provider, manager = CudaProvider(memory_type="host"), gpu.manager()
    pinned = Pool(provider).allocate(SIZE)
    with manager.capture(gpu.streams[0]) as graph:
        with pytest.raises(CaptureWouldBreak, match="a view of host memory"):
            np.from_dlpack(view(pinned))
        with manager.reserve(SIZE) as handle:
            gpu.set(manager.storage(handle).ptr, 7, gpu.streams[0])
    assert len(np.from_dlpack(view(pinned))) == SIZE
    graph.close()
    manager.close()
    pinned.free()


@pytest.mark.parametrize("kind", ["device", "pinned", "managed", "virtual", "pooled"])
def test_the_captures_memory_may_be_of_any_kind_of_cuda(gpu: Device, kind: str) -> None:
    provider, pool = PROVIDERS[kind](), Pool(gpu.provider)
    pool.allocate(SIZE, stream=gpu.streams[1]).free()
    with MemoryManager(provider, "exclusive_pages") as manager:
        with manager.capture(gpu.streams[0]) as graph:
            with manager.reserve(SIZE, stream=gpu.streams[0]) as handle:
                gpu.set(manager.storage(handle).ptr, 7, gpu.streams[0])
            with pytest.raises(CaptureWouldBreak):
                pool.synchronize()
            assert pool.trim() == 0
        graph.launch(gpu.streams[0])
        graph.close()
    pool.close()
    provider.close()


def test_a_manager_of_other_memory_captures_no_stream_of_cuda(gpu: Device) -> None:
    with (
        MemoryManager(HostProvider(), name="staging") as manager,
        pytest.raises(InvalidArgument, match=r"'staging' has memory of 'host'.*memory_type"),
    ):
        manager.capture(gpu.streams[0])


def test_a_manager_over_a_pool_says_that_it_cannot_grow(gpu: Device) -> None:
    """The pool would have to wait for the device, so that memory is ready for every stream."""
    pool = Pool(gpu.provider)
    with MemoryManager(pool, "sub_slices") as manager:
        with manager.capture(gpu.streams[0]) as graph:
            with pytest.raises(CaptureWouldBreak, match="cannot wait"):
                manager.reserve(SIZE)
            assert manager.memory_usage().bytes_reserved == 0
            assert pool.stats().live_allocations == 0
        graph.close()
        manager.reserve(SIZE).release()
    pool.close()
