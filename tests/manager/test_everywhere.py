"""Slices are memory of umfpy like any other: found, shared, counted, and served to libraries."""

from __future__ import annotations

import logging
import multiprocessing
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import umfpy
from tests.fakes.provider import FakeProvider
from tests.manager.conftest import Make
from tests.manager.support import (
    KIB,
    MIB,
    PROPERTIES,
    exclusive,
    layout,
    pattern,
    read,
    read_and_write,
    sliced,
    write,
)
from umfpy import (
    Capability,
    HostProvider,
    InvalidArgument,
    MemoryManager,
    NotSupported,
    Pool,
    Provider,
)
from umfpy.cli import main
from umfpy.integrations import cupy as plugin
from umfpy.ipc import export


def test_a_slice_is_found_from_each_of_its_addresses(make: Make, provider) -> None:
    manager = make(layout(sliced(1024, max_slice_size=512), exclusive(4096)))
    for size in (100, 3000):
        handle = manager.reserve(size)
        where = manager.storage(handle)
        for offset in (0, size // 2, size - 1):
            info = umfpy.find(where.ptr + offset)
            assert (info.base, info.size, info.offset) == (where.ptr, size, offset)
            assert info.pool is manager
            assert info.layout_pool.kind == ("sliced" if size == 100 else "exclusive")
            assert info.provider is provider
        assert manager.owns(where.ptr + size - 1)
        handle.release()
        assert umfpy.find(where.ptr) is None
        assert not manager.owns(where.ptr)


def test_ids_of_live_slices_differ(make: Make) -> None:
    manager = make("exclusive_pages")
    held = [manager.reserve(size) for size in (10, 40 * KIB, 300 * KIB, 5 * MIB)]
    held += [manager.reserve(10) for _ in range(3)]
    ids = {umfpy.find(manager.storage(handle).ptr).id for handle in held}
    assert len(ids) == len(held)


@pytest.fixture(params=["host", "cuda"])
def sharing(request: pytest.FixtureRequest) -> Iterator[tuple[str, Provider]]:
    """A kind of memory that can be shared, and its provider."""
    if request.param == "host":
        yield "host", HostProvider(shared=True)
        return
    emu = umfpy.emulate("cuda", memory="16GiB")
    before = emu.leaks()
    made = umfpy.CudaProvider(0)
    yield "cuda", made
    made.close()
    assert emu.leaks() == before


@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"])
@pytest.mark.parametrize("mode", ["auto", "persistent"])
def test_another_process_opens_a_slice(
    sharing: tuple[str, Provider], preset: str, mode: str
) -> None:
    kind, provider = sharing
    with MemoryManager(provider, preset, PROPERTIES) as manager:
        manager.mode(mode)
        spacer, handle = manager.reserve(100), manager.reserve(5000)
        where = manager.storage(handle)
        provider.copy(where.ptr, pattern(7, 5000), 5000)
        context = multiprocessing.get_context("spawn")
        results = context.Queue()
        child = context.Process(
            target=read_and_write, args=(kind, export(where.ptr), results), daemon=True
        )
        child.start()
        assert results.get(timeout=30) == pattern(7, 5000)
        child.join(60)
        assert child.exitcode == 0
        seen = bytearray(5000)
        provider.copy(seen, where.ptr, 5000)
        assert seen == b"seen" + pattern(7, 5000)[4:]
        spacer.release()
        handle.release()


def test_a_slice_can_be_another_pools_memory(make: Make) -> None:
    manager = make(layout(sliced(MIB)))
    with Pool(manager) as pool:
        allocation = pool.allocate(1000)
        assert umfpy.find(allocation.ptr).pool is pool
        assert manager.memory_usage().bytes_in_use >= 1000
        with pytest.raises(InvalidArgument, match="holds the memory of another pool"):
            manager.free(umfpy.core.extents.innermost(allocation.ptr).base)
        allocation.free()


def test_raw_addresses(make: Make) -> None:
    manager = make(layout(sliced(4 * KIB, max_slice_size=1 * KIB), exclusive(MIB)))
    small, large = manager.malloc(100, 256), manager.malloc(100 * KIB, 4096)
    assert small % 256 == 0
    assert large % 4096 == 0
    stats = manager.stats()
    assert (stats.live_allocations, stats.requested_bytes) == (2, 100 + 100 * KIB)
    for wrong in (small + 1, large + 5, 12345):
        with pytest.raises(InvalidArgument):
            manager.free(wrong)
    with pytest.raises(InvalidArgument, match="not 99"):
        manager.free(small, 99)
    with pytest.raises(InvalidArgument, match="belongs to an Allocation"):
        manager.free(manager.storage(handle := manager.reserve(10)).ptr)
    handle.release()
    manager.free(small, 100)
    manager.free(large)
    manager.free(0)
    with pytest.raises(InvalidArgument, match="freed already"):
        manager.free(large)


@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"])
def test_callers_in_c_are_sent_to_a_pool(make: Make, preset: str) -> None:
    manager = make(preset)
    with manager.reserve(10) as handle:
        pool = umfpy.find(manager.storage(handle).ptr).layout_pool
    for refused in (manager, pool):
        with pytest.raises(NotSupported, match=r"umfpy\.Pool"):
            refused.c_interface()


def test_memory_that_reads_as_zero() -> None:
    manager = MemoryManager(HostProvider(), [sliced(MIB, max_slice_size=100), exclusive(MIB)])
    for size in (100, 5000):
        first = manager.allocate(size)
        write(first.ptr, b"x" * size)
        first.free()
        again = manager.allocate(size, zero=True)
        assert read(again.ptr, size) == bytes(size)
        del again
    manager.close()


@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"])
def test_cupy_arrays_lie_in_it(preset: str) -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ImportError)
    provider = FakeProvider(capabilities=Capability.STREAMS, device=3)
    manager = MemoryManager(provider, preset, {"max_page_size": 64 * MIB, "alignment": 512})
    plugin.install(manager)
    try:
        arrays = [cupy.empty(size, dtype="uint8") for size in (1, 1000, 3 * MIB)]
        for array in arrays:
            info = umfpy.find(array.data.ptr)
            assert info.pool is manager
            assert info.size == array.nbytes
            assert array.data.ptr % 512 == 0
        assert manager.memory_usage().number_allocs == 3
        with manager.capturing_memory() as pins:
            scratch = cupy.empty(4096, dtype="uint8")
            kept = scratch.data.ptr
            del scratch
        assert [manager.storage(pin).ptr for pin in pins] == [kept]
        with pytest.raises(umfpy.OutOfMemoryError):
            cupy.empty(65 * MIB, dtype="uint8")
        del array, arrays[:]
        pins.clear()
        assert manager.memory_usage().number_allocs == 0
    finally:
        plugin.uninstall()
    manager.check("full")
    manager.close()


def test_the_report_has_no_undefined_numbers(make: Make) -> None:
    manager = make(layout(sliced(1024), exclusive(4096)), name="mine")
    empty = manager.report()
    assert "nan" not in empty.lower()
    assert "none" in empty
    manager.mode("persistent")
    weights = manager.reserve(1000)
    manager.mode("auto")
    held = [manager.reserve(100), manager.reserve(2000)]
    text = manager.report()
    for words in (
        "Memory of mine",
        "1.00 KiB: 0 free, 1 full, 1 in all",
        "mine/0 sliced 1.00 KiB: 1 slices of 100 B in 1 pages (0 idle) of 1.00 KiB",
        "slices     3 (peak 3)",
        "overhead",
        "efficiency",
    ):
        assert words in text, text
    assert weights.can_mut()
    held.clear()


def test_each_pool_has_peaks_of_its_own(make: Make) -> None:
    manager = make(layout(sliced(1024), exclusive(64 * KIB)))
    held = [manager.reserve(100) for _ in range(3)]
    held.pop()
    manager.reserve(5000).release()
    peaks = [pool.usage.peak_number_allocs for pool in manager.pool_usage()]
    assert peaks == [0, 3, 1]
    manager.reset_peaks()
    assert [pool.usage.peak_number_allocs for pool in manager.pool_usage()] == [0, 2, 0]
    manager.mode("persistent")
    held = [manager.reserve(100)]
    manager.mode("auto")
    assert manager.configure("sub_slices")
    assert manager.pool_usage()[0].usage.peak_number_allocs == 1, "which stays"


def test_peaks_are_of_all_pools_together(make: Make) -> None:
    manager = make(layout(sliced(1024), exclusive(8 * KIB)))
    manager.reserve(1000).release()
    manager.reserve(8 * KIB).release()
    usage = manager.memory_usage()
    assert usage.peak_bytes_in_use == 8 * KIB, "they never lived at once"
    assert usage.peak_number_allocs == 1
    manager.cleanup(True)
    manager.reset_peaks()
    usage = manager.memory_usage()
    assert (usage.peak_bytes_reserved, usage.peak_bytes_in_use) == (0, 0)
    assert (usage.efficiency, usage.padding_overhead) == (1.0, 0.0)


def test_what_is_logged(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "umfpy.manager"):
        manager = make(layout(sliced(1024)), name="mine")
        manager.mode("persistent")
        manager.reserve(10).release()
        manager.cleanup()
        manager.reserve(10).release()
        assert len(caplog.messages) == 3, "single requests are for DEBUG"
        manager.cleanup(True)
    assert caplog.messages[0] == "mine: layout of 1 pools: mine/0 sliced 1.00 KiB"
    assert caplog.messages[1] == "mine: mode persistent"
    assert caplog.messages[2] == "mine/persistent: a new page of 32 bytes"
    assert caplog.messages[3] == "mine: cleanup gave 32 B back"
    with caplog.at_level(logging.DEBUG, "umfpy.manager"):
        manager.reserve(10).release()
    assert "10 bytes from mine/persistent" in caplog.text


@pytest.mark.parametrize("pool", ["manager", "manager:exclusive_pages"])
def test_traces_replay_on_it_from_the_command_line(pool: str, tmp_path) -> None:
    trace = tmp_path / "small.csv"
    trace.write_text("op,id,size,stream\na,1,1000,0\na,2,5000000,0\nf,1,,\na,3,100,0\n")
    done = CliRunner().invoke(
        main,
        ["replay", str(trace), "--provider", "host", "--pool", pool, "--repeat", "1", "--json"],
    )
    assert done.exit_code == 0, done.output
    assert '"failed": 0' in done.output
