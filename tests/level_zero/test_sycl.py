"""Level Zero memory for SYCL's packages: ``__sycl_usm_array_interface__``."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from umfpy import (
    CoarseProvider,
    HostProvider,
    LevelZeroProvider,
    LevelZeroVmmProvider,
    Pool,
    ProxyPool,
)
from umfpy.errors import InvalidArgument, StaleHandle
from umfpy.integrations.sycl import UsmArray, as_usm


@pytest.fixture(params=["device", "host", "shared", "virtual memory"])
def pool(emu, request):
    kind = request.param
    provider = LevelZeroVmmProvider(1) if kind == "virtual memory" else LevelZeroProvider(1, kind)
    pool = Pool(provider)
    yield pool
    gc.collect()
    pool.close()
    provider.close()


def test_the_dictionary_of_the_protocol(pool):
    allocation = pool.allocate(4096)
    interface = as_usm(allocation, (8, 16), "f4").__sycl_usm_array_interface__
    device = max(pool.provider.device, 0)
    assert interface == {
        "data": (allocation.ptr, False),
        "shape": (8, 16),
        "strides": None,
        "offset": 0,
        "typestr": "<f4",
        "version": 1,
        "syclobj": f"level_zero:gpu:{device}",
    }


def test_shapes_and_types(pool):
    allocation = pool.allocate(24)
    for dtype, typestr, shape in (
        ("u1", "|u1", (24,)),
        (np.float64, "<f8", (3,)),
        (np.dtype("c16"), "<c16", None),
        ("int16", "<i2", (12,)),
        (bool, "|b1", (24,)),
    ):
        if shape is None:
            with pytest.raises(InvalidArgument, match="no whole number of complex128"):
                as_usm(allocation, dtype=dtype)
            continue
        found = as_usm(allocation, dtype=dtype).__sycl_usm_array_interface__
        assert (found["typestr"], found["shape"]) == (typestr, shape)
    assert as_usm(allocation, 5, "f4").shape == (5,)
    assert as_usm(allocation, (), "f8").shape == ()
    assert as_usm(allocation, [2, 3], "f4").shape == (2, 3)
    for shape in (7, (2, 4)):
        with pytest.raises(InvalidArgument, match="the allocation has 24"):
            as_usm(allocation, shape, "f4")
    with pytest.raises(InvalidArgument, match="bfloat16"):
        as_usm(allocation, dtype="bfloat16")


def test_it_keeps_the_allocation_alive(pool):
    allocation = pool.allocate(4096)
    array = as_usm(allocation, syclobj="a queue")
    watch = weakref.ref(array)
    del allocation
    gc.collect()
    assert pool.stats().used_bytes >= 4096
    assert array.__sycl_usm_array_interface__["syclobj"] == "a queue"
    del array
    gc.collect()
    assert watch() is None
    assert pool.stats().used_bytes == 0


def test_freed_memory_is_not_handed_out(pool):
    allocation = pool.allocate(4096)
    array = as_usm(allocation)
    assert isinstance(array, UsmArray)
    allocation.free()
    with pytest.raises(StaleHandle):
        _ = array.__sycl_usm_array_interface__
    with pytest.raises(StaleHandle):
        as_usm(allocation)


def test_through_nested_pools(emu):
    provider = LevelZeroProvider()
    outer = ProxyPool(CoarseProvider(provider))
    inner = Pool(outer)
    with inner.allocate(4096) as allocation:
        found = as_usm(allocation).__sycl_usm_array_interface__
        assert found["data"] == (allocation.ptr, False)
    inner.close()
    outer.close()
    outer.provider.close()
    provider.close()


def test_other_memory_is_refused():
    pool = Pool(HostProvider())
    with (
        pool.allocate(4096) as allocation,
        pytest.raises(InvalidArgument, match="this is of 'host'"),
    ):
        as_usm(allocation)
    pool.close()


@pytest.mark.parametrize("wrong", [None, 5, "memory", object()])
def test_what_is_no_memory(wrong):
    with pytest.raises(InvalidArgument, match="an Allocation or an IpcMapping is needed, not "):
        as_usm(wrong)


@pytest.mark.parametrize("wrong", ["2", 1.5, True, b"2", [None], ["2"], [1.5], [-1]])
def test_what_is_no_shape(pool, wrong):
    with pytest.raises(InvalidArgument, match=r"shape must be a .*, not "):
        as_usm(pool.allocate(64), wrong)
