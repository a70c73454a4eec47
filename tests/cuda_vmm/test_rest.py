"""What CUDA's providers give back in the end, and how they go on."""

from __future__ import annotations

import threading

import pytest

from umfpy import CudaAsyncProvider, CudaProvider, CudaVmmProvider, leaving
from umfpy.errors import DriverError
from umfpy.providers.cuda.renewed import Renewed

MIB = 1 << 20
UNKNOWN = 999


@pytest.fixture(autouse=True)
def _alone(monkeypatch):
    """Nobody but the test's own providers is asked."""
    monkeypatch.setattr(leaving, "_holders", {})


def test_a_stream_and_a_pool_come_again(emu):
    provider = CudaAsyncProvider(release_threshold="64MiB")
    before = provider._pool.id
    provider.free(provider.alloc(MIB), MIB)
    leaving.give_all_back()
    assert not emu.leaks()
    ptr = provider.alloc(100 * MIB)
    assert provider._pool.id != before, "importers must not take it for the one that is gone"
    provider.free(ptr, 100 * MIB)
    provider.synchronize()
    assert provider.stats().reserved == 64 * MIB
    provider.close()
    assert not emu.leaks()


def test_shared_memory_of_a_pool_that_came_again_can_be_opened(emu):
    exporter, importer = CudaAsyncProvider(), CudaAsyncProvider()
    for word in (b"first", b"again"):
        ptr = exporter.alloc(4096)
        exporter.copy(ptr, word, 5)
        payload = exporter.ipc_export(ptr, 4096)
        opened = importer.ipc_open(payload)
        seen = bytearray(5)
        importer.copy(seen, opened, 5)
        assert seen == word
        leaving.give_all_back()  # both are in use, and keep all they have
        importer.ipc_close(opened, 4096)
        exporter.ipc_release(payload)
        exporter.free(ptr, 4096)
        leaving.give_all_back()
        assert not emu.leaks()
    importer.close()
    exporter.close()


def test_live_memory_keeps_its_pool(emu):
    provider = CudaAsyncProvider()
    ptr = provider.alloc(MIB)
    handle, stream = provider.pool, provider.stream
    leaving.give_all_back()
    assert (provider.pool, provider.stream) == (handle, stream)
    provider.free(ptr, MIB)
    provider.close()


def test_a_pool_of_somebody_else_stays(emu):
    owner = CudaAsyncProvider()
    kept = owner.alloc(MIB)
    guest, default = CudaAsyncProvider(pool=owner.pool), CudaAsyncProvider(pool="default")
    leaving.give_all_back()
    assert emu.calls["cuMemPoolDestroy"] == 0
    for provider in (guest, default):
        provider.free(provider.alloc(MIB), MIB)
        provider.close()
    owner.free(kept, MIB)
    owner.close()


@pytest.mark.parametrize("name", ["cuStreamDestroy_v2", "cuMemPoolDestroy"])
def test_what_the_driver_refuses_is_given_back_by_close(emu, name):
    provider = CudaAsyncProvider()
    emu.fail(name, error=UNKNOWN)
    leaving.give_all_back()
    assert emu.leaks()
    provider.free(provider.alloc(MIB), MIB)
    provider.close()
    assert not emu.leaks()


def test_a_pool_that_cannot_be_set_up_again_is_not_left(emu):
    provider = CudaAsyncProvider(release_threshold="64MiB")
    leaving.give_all_back()
    emu.fail("cuMemPoolSetAttribute", error=UNKNOWN)
    with pytest.raises(DriverError, match="cuMemPoolSetAttribute"):
        provider.alloc(MIB)
    assert "pools" not in emu.leaks()
    provider.free(provider.alloc(MIB), MIB)
    provider.close()


def test_addresses_and_memory_that_are_kept_go_beside_live_ones(emu):
    provider = CudaVmmProvider()
    pieces = [provider.alloc(2 * MIB) for _ in range(3)]
    provider.copy(pieces[2], b"live", 4)
    for ptr in pieces[:2]:
        provider.free(ptr, 2 * MIB)
    assert provider.kept_bytes
    leaving.give_all_back()
    assert provider.kept_bytes == 0
    seen = bytearray(4)
    provider.copy(seen, pieces[2], 4)
    assert seen == b"live"
    provider.free(pieces[2], 2 * MIB)
    leaving.give_all_back()
    assert not emu.leaks()
    provider.free(provider.alloc(2 * MIB), 2 * MIB)
    provider.close()


def test_what_could_not_be_given_back_before_goes(emu, monkeypatch):
    monkeypatch.setattr("umfpy.providers.cuda.native.LIKELY_ALIGNMENT", 4096)
    provider = CudaProvider()
    first = provider.alloc(512)
    emu.fail("cuMemFree_v2", error=UNKNOWN)
    second = provider.alloc(4096, 4096)  # what lay at the wrong address stays behind
    for ptr, size in ((first, 512), (second, 4096)):
        provider.free(ptr, size)
    assert set(emu.leaks()) == {"allocations"}
    leaving.give_all_back()
    assert not emu.leaks()
    provider.close()


def test_many_threads_get_one_handle():
    made: list[int] = []
    handle = Renewed(lambda: made.append(1) or len(made), lambda _: None)
    threads = [threading.Thread(target=lambda: handle.handle) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (made, handle.handle) == ([1], 1)
    handle.rest()
    assert handle.handle == 2
    handle.close()
    assert handle.handle == 2, "the last one, which is gone"
    assert len(made) == 2
