"""Views of OpenCL memory."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import umfpy
from umfpy import DriverUnavailable, NotSupported, OpenCLProvider, Pool
from umfpy.integrations.dlpack import from_dlpack


def make(**options: object) -> OpenCLProvider:
    try:
        return OpenCLProvider(**options)
    except DriverUnavailable as absent:
        pytest.skip(f"no OpenCL platform: {absent}")
    except umfpy.InvalidArgument as lacking:
        # PoCL has both kinds of shared virtual memory; a GPU may lack the fine-grained.
        pytest.skip(f"no OpenCL platform with that: {lacking}")


def test_a_buffer_is_passed_on_as_the_handle_that_dlpack_means() -> None:
    provider = make(mode="buffer")
    pool = Pool(provider)
    view = umfpy.view(pool.allocate(4096), offset=2 * provider.granule)
    assert view.__dlpack_device__() == (4, max(provider.device, 0))
    tensor = from_dlpack(view)
    del view
    cl = pytest.importorskip("pyopencl")
    buffer = cl.MemoryObject.from_int_ptr(tensor.ptr, retain=True)
    assert buffer.size == tensor.nbytes == 4096 - 2 * provider.granule
    assert buffer.offset == 2 * provider.granule
    del tensor
    gc.collect()
    assert pool.stats().live_allocations == 0


def test_fine_grained_memory_is_the_hosts_too() -> None:
    provider = make(mode="svm", memory_type="shared")
    view = umfpy.view(Pool(provider).allocate(4096, zero=True), dtype="i4")
    assert view.__dlpack_device__() == (1, 0)
    array = np.from_dlpack(view)
    array[:] = 7
    seen = bytearray(4096)
    provider.copy(seen, view.ptr, 4096)
    assert (np.frombuffer(seen, "i4") == 7).all()


def test_coarse_grained_memory_has_no_name() -> None:
    view = umfpy.view(Pool(make(mode="svm", memory_type="device")).allocate(4096))
    assert not hasattr(view, "__array_interface__")
    with pytest.raises(NotSupported, match="no name in DLPack"):
        view.__dlpack__()
