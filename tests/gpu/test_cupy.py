"""A CuPy program that runs kernels, on umfpy's pools."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import umfpy
from umfpy import CudaProvider, OutOfMemoryError, Pool
from umfpy.integrations import cupy as plugin

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)

MIB = 1 << 20


@pytest.fixture
def pool(cuda: CudaProvider) -> Iterator[Pool]:
    with Pool(cuda) as made:
        plugin.install(made)
        yield made
        cupy.cuda.Device().synchronize()
        plugin.uninstall()
        made.check("full")


def test_sums_sorts_and_products_are_right(pool: Pool) -> None:
    # given
    numbers = np.random.default_rng(1).random((512, 512))

    # when
    on_device = cupy.asarray(numbers)
    product = cupy.asnumpy(on_device @ on_device.T)
    total = float((on_device**2).sum())
    ordered = cupy.asnumpy(cupy.sort(on_device, axis=0))

    # then
    np.testing.assert_allclose(product, numbers @ numbers.T, rtol=1e-9)
    assert total == pytest.approx((numbers**2).sum())
    np.testing.assert_array_equal(ordered, np.sort(numbers, axis=0))
    assert umfpy.find(on_device.data.ptr).pool is pool
    del on_device
    assert pool.stats().requested_bytes == 0


def test_results_on_several_streams_are_right(pool: Pool) -> None:
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    results = []
    for round_ in range(50):
        with streams[round_ % 4]:
            part = cupy.full(1 << 16, round_, dtype="float64")
            for _ in range(10):
                part = part * 2 - round_
            results.append(part.sum())
    for round_, result in enumerate(results):
        streams[round_ % 4].synchronize()
        assert float(result.get()) == round_ * (1 << 16)


def test_cupys_own_pool_on_top_gives_back_and_tries_again(pool: Pool) -> None:
    pool.limit_bytes = 64 * MIB
    on_top = cupy.cuda.MemoryPool(cupy.cuda.get_allocator())
    kept = [on_top.malloc(10 * MIB) for _ in range(5)]
    del kept

    memory = on_top.malloc(40 * MIB)

    assert umfpy.find(memory.ptr).offset == 0
    del memory
    on_top.free_all_blocks()
    with pytest.raises(OutOfMemoryError):
        cupy.empty(100 * MIB, dtype="uint8")


def test_views_and_interfaces(pool: Pool) -> None:
    array = cupy.arange(1000)
    view = array[10:20]
    assert umfpy.find(view.data.ptr).offset == 80
    assert view.__cuda_array_interface__["data"][0] == array.data.ptr + 80
    assert cupy.from_dlpack(view).tolist() == list(range(10, 20))
    del array
    assert int(view.sum()) == sum(range(10, 20))
