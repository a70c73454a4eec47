"""`trim` of a manager: pages go whole, whatever rung is asked for."""

from __future__ import annotations

import pytest

import umfpy
from tests.manager.conftest import Make
from tests.manager.support import MIB, exclusive, layout, sliced
from umfpy import Capability, CudaVmmProvider, HostProvider, InvalidArgument, MemoryManager, emulate
from umfpy.pools.rungs import RUNGS


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("entry", [sliced(4 * MIB), exclusive(4 * MIB)])
def test_idle_pages_are_freed(make: Make, entry: object, rung: str) -> None:
    manager = make(layout(entry))
    held = manager.reserve(3 * MIB)
    manager.reserve(3 * MIB).release()
    page = manager.memory_usage().bytes_reserved // 2
    went = manager.trim(rung=rung)
    assert (went, went.rung) == (page, "free")
    went = manager.trim(rung=rung)
    assert (went, went.rung) == (0, None), "nothing is idle"
    manager.check("full")
    held.release()


@pytest.mark.parametrize("kind", ["host", "cuda_vmm"])
@pytest.mark.parametrize("way", ["cleanup", "trim", "layout pool"])
def test_free_parts_of_a_page_stay_ready(kind: str, way: str) -> None:
    """Also where addresses and memory are apart, and a default pool takes the memory out."""
    if kind == "cuda_vmm":
        emulate("cuda", memory="16GiB")
    provider = HostProvider() if kind == "host" else CudaVmmProvider()
    assert Capability.RESERVE in provider.capabilities
    manager = MemoryManager(provider, [sliced(16 * MIB)])
    with manager, manager.reserve(2 * MIB) as held:
        manager.reserve(12 * MIB).release()
        layout_pool = umfpy.find(manager.storage(held).ptr).layout_pool
        ways = {
            "cleanup": lambda: manager.cleanup(explicit=True),
            "trim": manager.trim,
            "layout pool": layout_pool.trim,
        }
        assert ways[way]() == 0
        manager.reserve(12 * MIB).release()
        (_, pool) = manager.pool_usage()
        assert (pool.pages, pool.usage.bytes_reserved) == (1, 16 * MIB)
        manager.check("full")
    provider.close()


def test_what_is_no_rung(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        allocation = manager.allocate(100)
        window = umfpy.find(allocation.ptr).layout_pool
        for pool in (manager, window):
            assert (pool.trim(rung="decommit"), pool.trim().rung) == (0, None)
            with pytest.raises(InvalidArgument, match="'evaporate'"):
                pool.trim(rung="evaporate")
    allocation.free()
    with pytest.raises(InvalidArgument, match="'evaporate'"):
        manager.trim(rung="evaporate")
    pins.clear()
