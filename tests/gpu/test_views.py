"""CuPy arrays over umfpy's memory, and umfpy's over CuPy's, without a copy."""

from __future__ import annotations

import numpy as np
import pytest

import umfpy
from umfpy import CudaProvider, Pool
from umfpy.integrations.dlpack import fixed_provider, from_dlpack

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)


def test_cupy_takes_a_view_by_both_protocols(cuda: CudaProvider) -> None:
    with Pool(cuda) as pool:
        view = umfpy.view(pool.allocate(4 * 1000, zero=True), (10, 100), "f4")
        arrays = [cupy.from_dlpack(view), cupy.asarray(view)]
        assert [array.data.ptr for array in arrays] == [view.ptr] * 2
        arrays[0][...] = cupy.arange(1000, dtype="f4").reshape(10, 100)
        seen = np.empty((10, 100), "f4")
        cupy.cuda.Device().synchronize()
        cuda.copy(memoryview(seen).cast("B"), view.ptr, seen.nbytes)
        assert np.array_equal(seen, np.arange(1000, dtype="f4").reshape(10, 100))
        assert np.array_equal(cupy.asnumpy(arrays[1]), seen)
        del view
        assert pool.stats().live_allocations == 1
        del arrays
        assert pool.stats().live_allocations == 0


def test_a_consumer_on_another_stream_sees_what_was_queued_before(cuda: CudaProvider) -> None:
    first, second = (cupy.cuda.Stream(non_blocking=True) for _ in range(2))
    with Pool(cuda) as pool:
        for round_ in range(20):
            view = umfpy.view(pool.allocate(8 << 20, stream=first), dtype="i8")
            with first:
                mine = cupy.asarray(view)
                for _ in range(50):
                    mine[...] = round_
            with second:
                theirs = cupy.from_dlpack(view)
                total = theirs.sum()
            second.synchronize()
            assert int(total.get()) == round_ << 20
            first.synchronize()
            del view, mine, theirs, total


def test_a_pool_over_a_cupy_array(cuda: CudaProvider) -> None:
    array = cupy.zeros(1 << 20, "u1")
    tensor = from_dlpack(array)
    assert (tensor.ptr, tensor.device) == (array.data.ptr, (2, 0))
    provider = fixed_provider(array)
    with Pool(provider) as pool:
        part = cupy.asarray(umfpy.view(pool.allocate(1000)))
        part[...] = 3
        assert int((array == 3).sum()) == 1000
        del part
    assert (provider.memory_type, provider.device) == ("device", 0)
