"""What `trim`, `cleanup` and the pools of a layout take of memory that nothing is in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import umfpy
from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.laddered import LadderedProvider
from tests.manager.conftest import Make
from tests.manager.ladder import agree
from tests.manager.support import KIB, MIB, exclusive, layout, sliced
from umfpy import (
    Capability,
    CudaVmmProvider,
    HostProvider,
    InvalidArgument,
    MemoryManager,
    Provider,
    emulate,
)
from umfpy.pools.rungs import RUNGS


@pytest.fixture(params=["host", "cuda_vmm"])
def reserving(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """A provider that keeps addresses and memory apart."""
    if request.param == "cuda_vmm":
        emulate("cuda", memory="16GiB")
    provider = HostProvider() if request.param == "host" else CudaVmmProvider()
    assert Capability.RESERVE in provider.capabilities
    yield provider
    provider.close()


@pytest.mark.parametrize("way", ["cleanup", "trim", "layout pool"])
def test_free_parts_of_a_page(reserving: Provider, way: str) -> None:
    """They go where memory is asked back, and stay where idle pages are."""
    manager = MemoryManager(reserving, [sliced(16 * MIB)])
    with manager, manager.reserve(2 * MIB) as held:
        manager.reserve(12 * MIB).release()
        layout_pool = umfpy.find(manager.storage(held).ptr).layout_pool
        ways = {
            "cleanup": lambda: manager.cleanup(explicit=True),
            "trim": manager.trim,
            "layout pool": layout_pool.trim,
        }
        went = ways[way]()
        assert (went >= 8 * MIB) == (way != "cleanup")
        usage = manager.memory_usage()
        assert (usage.bytes_reserved, usage.bytes_unbacked) == (16 * MIB - went, went)
        manager.reserve(12 * MIB).release()
        (_, pool) = manager.pool_usage()
        assert pool.pages == 1
        assert pool.usage.bytes_reserved >= 14 * MIB
        manager.check("full")


def test_cleanup_gives_the_device_what_the_provider_keeps() -> None:
    emulate("cuda", memory="16GiB")
    provider = CudaVmmProvider()
    with MemoryManager(provider, [exclusive(16 * MIB)]) as manager:
        manager.reserve(16 * MIB).release()
        manager.trim(rung="decommit")
        assert provider.kept_bytes > 0
        manager.cleanup(explicit=True)
        assert (provider.kept_bytes, provider.reserved_bytes) == (0, 0)
    provider.close()


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("entry", [sliced(4 * MIB), exclusive(4 * MIB)])
def test_nothing_is_idle(make: Make, entry: object, rung: str) -> None:
    manager = make(layout(entry))
    held = manager.reserve(4 * MIB)
    went = manager.trim(rung=rung)
    assert (went, went.rung) == (0, None)
    manager.check("full")
    held.release()


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


def test_idle_memory_is_told_of(make: Make) -> None:
    manager = make(layout(exclusive(4 * KIB)))
    with pytest.raises(InvalidArgument, match=r"dealloc_period, or call trim\(\)"):
        manager.sweep()


# How the pages of several pools share what is to stay.


def managed(**options: object) -> tuple[LadderedProvider, MemoryManager]:
    provider = LadderedProvider(Capability.SPLIT | LADDER)
    entries = [sliced(32 * KIB), exclusive(64 * KIB)]
    properties = {"max_page_size": MIB, "alignment": 512}
    return provider, MemoryManager(provider, entries, properties, **options)


def test_large_pages_go_first_and_hidden_memory_is_not_ready() -> None:
    provider, manager = managed()
    held = [manager.reserve(32 * KIB), manager.reserve(64 * KIB)]
    manager.mode("persistent")
    held.append(manager.reserve(16 * KIB))
    held.clear()
    assert manager.memory_usage().bytes_reserved == 112 * KIB
    assert manager.trim(48 * KIB, rung="dalloc") == 64 * KIB
    assert [pool.asleep_pages for pool in manager.pool_usage()] == [0, 0, 1]
    assert manager.trim(16 * KIB, rung="dalloc") == 32 * KIB
    assert [pool.asleep_pages for pool in manager.pool_usage()] == [0, 1, 1]
    assert manager.trim(16 * KIB, rung="purge_force") == 96 * KIB, "which makes it ready"
    assert manager.trim(16 * KIB, rung="decommit") == 96 * KIB
    assert manager.trim("16KiB") == 0
    assert manager.trim() == 16 * KIB
    agree(manager, provider)
    assert not provider.live
    manager.close()


def test_what_sleeps_is_in_the_report() -> None:
    provider = LadderedProvider()
    properties = {"max_page_size": MIB, "alignment": 512}
    with MemoryManager(provider, [exclusive(32 * KIB)], properties) as manager:
        held = [manager.reserve(32 * KIB) for _ in range(4)]
        manager.mode("persistent")
        held += [manager.reserve(8 * KIB) for _ in range(3)]
        del held[5:], held[2:4]
        assert "asleep" not in manager.report()
        manager.trim(32 * KIB * 4 + 8 * KIB, rung="dalloc")
        manager.trim(32 * KIB * 3 + 8 * KIB, rung="decommit")
        manager.reserve(8 * KIB).release()
        text = manager.report()
        for words in (
            "8.00 KiB: 1 free, 1 asleep, 1 full, 3 in all",
            "2 slices of 64.00 KiB in 4 pages (1 idle, 1 asleep) of 96.00 KiB",
            "asleep     0 B hidden, and addresses of 40.00 KiB (40960 B) without memory",
        ):
            assert words in text, text
        agree(manager, provider)
        held.clear()


@pytest.mark.parametrize("rung", ["dalloc", "decommit"])
def test_what_sleeps_leads_nowhere(rung: str) -> None:
    provider, manager = managed()
    handle = manager.reserve(20 * KIB)
    where = manager.storage(handle).ptr
    handle.release()
    manager.trim(rung=rung)
    assert umfpy.find(where) is None
    assert not manager.owns(where)
    with pytest.raises(InvalidArgument, match="freed already"):
        manager.free(where)
    again = manager.reserve(20 * KIB)
    assert manager.storage(again).ptr == where
    assert umfpy.find(where + 5).offset == 5
    again.release()
    manager.close()
    assert not provider.live


@pytest.mark.parametrize("rung", ["dalloc", "purge_lazy", "decommit", "purge_force"])
def test_the_layout_changes_with_pages_asleep(rung: str) -> None:
    provider, manager = managed()
    manager.reserve(20 * KIB).release()
    manager.reserve(60 * KIB).release()
    manager.trim(rung=rung)
    assert manager.configure([exclusive(MIB)])
    assert not provider.live
    with manager.reserve(60 * KIB):
        assert not manager.configure([sliced(MIB)])
    manager.close()
    assert not provider.live


def test_a_page_that_sleeps_in_part_goes_with_its_last_slice() -> None:
    provider = LadderedProvider()
    manager = MemoryManager(provider, [sliced(64 * KIB)], {"max_page_size": MIB, "alignment": 512})
    held = [manager.reserve(16 * KIB) for _ in range(3)]
    del held[0]
    manager.trim(rung="decommit")
    with pytest.warns(ResourceWarning, match="2 live slices"):
        manager.close()
    agree(manager, provider)
    held.clear()
    assert not provider.live
