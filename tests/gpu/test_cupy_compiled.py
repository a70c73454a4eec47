"""On a GPU, CuPy is served by compiled code that knows its devices and streams."""

from __future__ import annotations

import pytest

from umfpy import CudaProvider, Pool
from umfpy.integrations import cupy as plugin

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)


def test_the_compiled_allocator_is_in_use_and_follows_the_stream(cuda: CudaProvider) -> None:
    from umfpy.integrations._cupy import Fast

    with Pool(cuda) as pool:
        plugin.install(pool)
        assert isinstance(cupy.cuda.get_allocator(), Fast)
        for stream in (cupy.cuda.Stream.null, cupy.cuda.Stream(), cupy.cuda.Stream.ptds):
            with stream:
                array = cupy.ones(1000)
                found = pool.map.describe(array.data.ptr)["stream"]
                assert found == stream.ptr or stream.ptr == 2
                assert float(array.sum()) == 1000
                del array
        cupy.cuda.Device().synchronize()
        plugin.uninstall()
