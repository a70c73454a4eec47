"""pyopencl's arrays and kernels on a pool."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import umfpy
from tests.opencl.support import Kind
from umfpy import (
    CoarseProvider,
    HostProvider,
    InvalidArgument,
    OpenCLProvider,
    OutOfMemoryError,
    Pool,
    ProxyPool,
    StaleHandle,
)

cl = pytest.importorskip("pyopencl", exc_type=ModuleNotFoundError)
cl_array = pytest.importorskip("pyopencl.array", exc_type=ModuleNotFoundError)
plugin = pytest.importorskip("umfpy.integrations.pyopencl")

#: Some compilers have something to say about every kernel.
pytestmark = pytest.mark.filterwarnings("ignore:Non-empty compiler output")

KERNEL = """
kernel void axpy(float a, global const float *x, global float *y) {
    y[get_global_id(0)] += a * x[get_global_id(0)];
}
"""


@pytest.fixture
def pool(provider: OpenCLProvider) -> Iterator[Pool]:
    """A pool that has everything back at the end."""
    made = Pool(provider)
    yield made
    gc.collect()
    assert made.stats().live_allocations == 0
    made.check("full")
    made.close()


def iterate(queue: object, x: np.ndarray, steps: int, allocator: object) -> np.ndarray:
    """A recurrence that makes four arrays a step, and drops them."""
    a = cl_array.to_device(queue, x, allocator=allocator)
    total = cl_array.zeros(queue, x.shape, x.dtype, allocator=allocator)
    for step in range(steps):
        total = total * np.float32(0.5) + a * np.float32(step % 7) + np.float32(1)
    return total.get()


def test_thousands_of_temporaries(provider: OpenCLProvider, pool: Pool) -> None:
    x = np.random.default_rng(5).random(3000, np.float32)
    seen = iterate(provider.queue, x, 1000, plugin.allocator(pool))
    theirs = iterate(provider.queue, x, 1000, None)
    expected = np.zeros_like(x)
    for step in range(1000):
        expected = expected * np.float32(0.5) + x * np.float32(step % 7) + np.float32(1)
    assert np.array_equal(seen, theirs)
    assert np.allclose(seen, expected)
    gc.collect()
    stats = pool.stats()
    assert stats.allocations >= 4000
    assert stats.live_allocations == 0
    # A few arrays are alive at a time, so that the first extent is enough.
    assert stats.provider_allocs == provider.live_count() == 1
    assert pool.trim() == stats.reserved_bytes
    assert provider.live_count() == 0


def test_an_array_lies_in_the_pool_and_goes_back(provider: OpenCLProvider, pool: Pool) -> None:
    a = cl_array.empty(provider.queue, (10, 100), np.float32, allocator=plugin.allocator(pool))
    allocation = a.base_data.umfpy_allocation
    assert pool.owns(allocation.ptr)
    assert allocation.size == 4000
    if provider.mode == "buffer":
        assert a.base_data.size == 4000
        assert a.base_data.offset == 0
    else:
        assert a.base_data.svm_ptr == allocation.ptr
    del allocation
    b = a + 1
    gc.collect()
    assert pool.stats().live_allocations == 2
    del a, b
    gc.collect()
    assert pool.stats().live_allocations == 0


def test_slices_share_the_memory_and_keep_it(provider: OpenCLProvider, pool: Pool) -> None:
    x = np.arange(1000, dtype=np.int32)
    whole = cl_array.to_device(provider.queue, x, allocator=plugin.allocator(pool))
    part = whole[100:200]
    del whole
    gc.collect()
    assert pool.stats().live_allocations == 1
    assert np.array_equal((part + 1).get(), x[100:200] + 1)


def test_a_kernel_on_an_allocation(provider: OpenCLProvider, pool: Pool) -> None:
    kernel = cl.Program(provider.context, KERNEL).build().axpy
    count = 1000
    x = np.random.default_rng(6).random(count, np.float32)
    source = pool.allocate(4 * count)
    target = pool.allocate(4 * count, zero=True)
    provider.copy(source.ptr, x.tobytes(), 4 * count)
    y = plugin.buffer(target)
    for _ in range(10):
        kernel(provider.queue, (count,), None, np.float32(0.5), plugin.buffer(source), y)
    seen = bytearray(4 * count)
    provider.copy(seen, target.ptr, 4 * count)
    assert np.allclose(np.frombuffer(seen, np.float32), 5 * x)
    # The argument keeps the allocation.
    del source, target
    gc.collect()
    assert pool.stats().live_allocations == 1
    del y


def test_whatever_lies_between_pool_and_provider(provider: OpenCLProvider) -> None:
    coarse = CoarseProvider(provider, reserve=1 << 20)
    pools = [ProxyPool(coarse)]
    for _ in range(2):
        pools.append(Pool(pools[-1]))
    x = np.arange(500, dtype=np.float32)
    theirs = iterate(provider.queue, x, 20, None)
    for pool in reversed(pools):
        assert np.array_equal(iterate(provider.queue, x, 20, plugin.allocator(pool)), theirs)
        gc.collect()
        assert pool.stats().allocations > 80
        assert pool.stats().live_allocations == 0
        pool.close()
    coarse.close()


def test_two_queues_each_with_an_allocator(provider: OpenCLProvider, pool: Pool) -> None:
    queues = [cl.CommandQueue(provider.context) for _ in range(2)]
    allocators = [plugin.allocator(pool, queue) for queue in queues]
    x = np.arange(2000, dtype=np.float32)
    totals = [
        cl_array.to_device(queue, x, allocator=a)
        for queue, a in zip(queues, allocators, strict=True)
    ]
    for _ in range(100):
        totals = [total * np.float32(0.5) + np.float32(1) for total in totals]
    expected = x
    for _ in range(100):
        expected = expected * np.float32(0.5) + np.float32(1)
    for total in totals:
        assert np.array_equal(total.get(), expected)
    assert [a.queue for a in allocators] == queues


def test_running_out_of_memory_is_said_and_survived(provider: OpenCLProvider) -> None:
    pool = Pool(provider, limit_bytes=1 << 20)
    allocator = plugin.allocator(pool)
    held = cl_array.empty(provider.queue, 1 << 19, np.uint8, allocator=allocator)
    with pytest.raises(OutOfMemoryError) as caught:
        cl_array.empty(provider.queue, 1 << 20, np.uint8, allocator=allocator)
    assert caught.value.requested == 1 << 20
    del held
    gc.collect()
    whole = cl_array.zeros(provider.queue, 1 << 20, np.uint8, allocator=allocator)
    assert not whole.get().any()
    del whole
    gc.collect()
    pool.close()


def test_what_is_no_opencl_memory_is_refused(any_provider: type[OpenCLProvider]) -> None:
    provider = any_provider()
    pool = Pool(provider)
    host = Pool(HostProvider())
    for wrong in (host, provider, "pool"):
        with pytest.raises(InvalidArgument):
            plugin.allocator(wrong)
    with pytest.raises(InvalidArgument, match="OpenCL memory is needed"):
        plugin.buffer(host.allocate(64))
    with pytest.raises(InvalidArgument, match="Allocation is needed"):
        plugin.buffer(12345)
    with pytest.raises(InvalidArgument, match="0 bytes"):
        plugin.buffer(pool.allocate(0))
    with pytest.raises(InvalidArgument, match="0 bytes"):
        plugin.allocator(pool)(0)
    freed = pool.allocate(64)
    freed.free()
    with pytest.raises(StaleHandle):
        plugin.buffer(freed)
    elsewhere = cl.CommandQueue(other := cl.Context(provider.context.devices))
    with pytest.raises(InvalidArgument, match="another context"):
        plugin.allocator(pool, elsewhere)
    del other
    pool.close()


def test_parts_of_a_buffer_start_where_the_device_lets_them(kind: Kind) -> None:
    provider = kind.provider()
    size = 10 * provider.granule
    ptr = provider.alloc(size)
    for start in (0, provider.granule, 7 * provider.granule):
        assert provider.buffer(ptr + start, 5).size == 5
    if kind.mode == "buffer":
        with pytest.raises(umfpy.AlignmentError, match=f"multiple of {provider.granule}"):
            provider.buffer(ptr + 1, 5)
        for outside in (ptr + size, ptr - 1, 64):
            with pytest.raises(InvalidArgument, match="not in one buffer"):
                provider.buffer(outside, 5)
    provider.free(ptr, size)
