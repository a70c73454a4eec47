"""CudaVmmProvider: what the driver is asked to do; `tests/vmm` has what all drivers share."""

from __future__ import annotations

import itertools

import pytest
from cuda.bindings import driver

import umfpy
from tests.fakes.programs import run_python
from umfpy.errors import (
    DriverError,
    DriverUnavailable,
    InvalidArgument,
    NotSupported,
    OutOfMemoryError,
)
from umfpy.provider import Capability
from umfpy.providers.cuda import CudaProvider, CudaVmmProvider
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.vmm.provider import VmmProvider

MIB = 1 << 20
UNIT = 2 * MIB
UNKNOWN = 999


def mapped(provider):
    return provider.reserved_bytes - provider.kept_bytes


def test_calls_of_an_allocation(provider, emu):
    emu.reset_calls()
    ptr = provider.alloc(100 * MIB)
    sizes = [chunk.size for chunk in provider.chunks(ptr, 100 * MIB)]
    assert sizes == [16 * MIB] * 6 + [4 * MIB]
    assert emu.calls["cuMemCreate"] == emu.calls["cuMemMap"] == 7
    assert emu.calls["cuMemSetAccess"] == emu.calls["cuMemAddressReserve"] == 1
    provider.free(ptr, 100 * MIB)
    assert emu.calls["cuMemUnmap"] == 1


def test_what_is_kept_serves_again_and_is_bounded(provider, emu):
    ptr = provider.alloc(32 * MIB)
    provider.free(ptr, 32 * MIB)
    assert provider.reserved_bytes == provider.kept_bytes == 32 * MIB
    emu.reset_calls()
    ptr = provider.alloc(32 * MIB)
    assert emu.calls["cuMemCreate"] == provider.kept_bytes == 0
    provider.free(ptr, 32 * MIB)
    large = provider.alloc(1 << 30)
    provider.free(large, 1 << 30)
    assert provider.kept_bytes <= (4 << 30) // 64
    assert provider.trim("16MiB") > 0
    assert provider.reserved_bytes <= 16 * MIB
    provider.trim()
    assert provider.reserved_bytes == 0
    assert "handles" not in emu.live()


def test_what_is_kept_goes_before_memory_runs_out(provider, emu):
    ptrs = [provider.alloc(8 * MIB) for _ in range(7)]
    for ptr in ptrs:
        provider.free(ptr, 8 * MIB)
    assert provider.kept_bytes == 56 * MIB
    everything = provider.alloc(4 << 30)
    assert provider.reserved_bytes == 4 << 30
    with pytest.raises(OutOfMemoryError, match=f"0 of {4 << 30} bytes free") as caught:
        provider.alloc(UNIT)
    assert (caught.value.requested, caught.value.provider) == (UNIT, "cuda_vmm")
    provider.free(everything, 4 << 30)


def test_a_fixed_chunk_size(emu):
    with pytest.raises(InvalidArgument, match="power of two"):
        CudaVmmProvider(chunk_size="6MiB")
    with pytest.raises(InvalidArgument, match="at least"):
        CudaVmmProvider(chunk_size="1MiB")
    with pytest.raises(InvalidArgument, match=r"at most what this device has, 4\.00 GiB"):
        CudaVmmProvider(chunk_size="8GiB")
    provider = CudaVmmProvider(chunk_size="8MiB")
    assert provider.granularity(1) == provider.recommended_granularity() == 8 * MIB
    ptr = provider.alloc(17 * MIB)
    assert [chunk.size for chunk in provider.chunks(ptr, 17 * MIB)] == [8 * MIB] * 3
    provider.free(ptr, 17 * MIB)
    provider.close()


def test_commit_brings_back_what_is_kept_before_it_makes_more(provider, emu):
    ptr = provider.alloc(8 * MIB)
    provider.split(ptr, 8 * MIB, 6 * MIB)
    provider.commit(large := provider.reserve(24 * MIB), 24 * MIB, chunk_size=12 * MIB)
    provider.free(large, 24 * MIB)
    provider.decommit(ptr, 6 * MIB)
    assert provider.kept_bytes == 30 * MIB
    emu.reset_calls()
    target = provider.reserve(40 * MIB)
    provider.split(target, 40 * MIB, 16 * MIB)
    provider.commit(target, 16 * MIB, clear=False, chunk_size=8 * MIB)
    sizes = [chunk.size for chunk in provider.chunks(target, 16 * MIB)]
    assert sizes == [12 * MIB, UNIT, UNIT]
    assert emu.calls["cuMemCreate"] == 0
    assert provider.kept_bytes == 14 * MIB
    provider.commit(target + 16 * MIB, 24 * MIB, clear=False, chunk_size=8 * MIB)
    sizes = [chunk.size for chunk in provider.chunks(target + 16 * MIB, 24 * MIB)]
    assert sizes == [12 * MIB, UNIT, 8 * MIB, UNIT]
    assert emu.calls["cuMemCreate"] == 2
    assert provider.kept_bytes == emu.calls["cuMemsetD8_v2"] == 0
    for at, size in ((ptr, 6 * MIB), (ptr + 6 * MIB, UNIT), (target, 16 * MIB)):
        provider.free(at, size)
    provider.free(target + 16 * MIB, 24 * MIB)


def test_only_what_is_to_be_clear_is_cleared(provider, emu, read):
    ptr = provider.alloc(UNIT)
    provider.copy(ptr, b"x" * UNIT, UNIT)
    provider.dalloc(ptr, UNIT)
    provider.commit(ptr, UNIT, clear=False)
    assert read(provider, ptr, UNIT) == b"x" * UNIT
    provider.decommit(ptr, UNIT)
    emu.reset_calls()
    provider.commit(ptr, UNIT, clear=False)
    assert emu.calls["cuMemsetD8_v2"] == 0
    provider.decommit(ptr, UNIT)
    provider.commit(ptr, UNIT)
    assert read(provider, ptr, UNIT) == bytes(UNIT)
    provider.free(ptr, UNIT)


def test_a_fixed_chunk_size_stays(emu):
    provider = CudaVmmProvider(chunk_size="4MiB")
    ptr = provider.reserve(16 * MIB)
    with pytest.raises(InvalidArgument, match="4194304 bytes"):
        provider.commit(ptr, 16 * MIB, chunk_size=UNIT)
    provider.commit(ptr, 16 * MIB, chunk_size=8 * MIB)
    assert [chunk.size for chunk in provider.chunks(ptr, 16 * MIB)] == [4 * MIB] * 4
    provider.free(ptr, 16 * MIB)
    provider.close()


@pytest.mark.refuses("cuMemsetD8", driver.CUresult.CUDA_ERROR_INVALID_VALUE)
def test_the_driver_knows_what_is_inaccessible(provider, emu):
    ptr = provider.alloc(UNIT)
    provider.dalloc(ptr, UNIT)
    assert mapped(provider) == UNIT
    with pytest.raises(DriverError):
        super(VmmProvider, provider).zero(ptr, 16)
    provider.free(ptr, UNIT)


def test_remap_refusals_change_nothing(provider, read):
    ptr, other = provider.alloc(4 * MIB), provider.alloc(UNIT)
    provider.copy(ptr, b"kept", 4)
    target = provider.reserve(4 * MIB)
    small = provider.reserve(UNIT)
    for sources, to, size in (
        ([(ptr, UNIT)], target, 4 * MIB),
        ([(ptr, 4 * MIB)], target, UNIT),
        ([(ptr, 4 * MIB)], small, UNIT),
        ([(ptr, 4 * MIB), (ptr, 4 * MIB)], target, 4 * MIB),
        ([(ptr, 4 * MIB)], other, UNIT),
        ([(ptr, 4 * MIB)], ptr, 4 * MIB),
        ([(other, UNIT)], other, UNIT),
    ):
        with pytest.raises(InvalidArgument):
            provider.remap(sources, to, size)
    provider.dalloc(other, UNIT)
    provider.split(ptr, 4 * MIB, UNIT)
    with pytest.raises(InvalidArgument, match="memory at"):
        provider.remap([(ptr, UNIT)], other, UNIT)
    provider.merge(ptr, ptr + UNIT, 4 * MIB)
    provider.ipc_release(provider.ipc_export(ptr, 4 * MIB))
    with pytest.raises(InvalidArgument, match="was exported"):
        provider.remap([(ptr, 4 * MIB)], target, 4 * MIB)
    assert read(provider, ptr, 4) == b"kept"
    assert provider.chunks(ptr, 4 * MIB)[0].exported
    for at, size in ((ptr, 4 * MIB), (other, UNIT), (target, 4 * MIB), (small, UNIT)):
        provider.free(at, size)


def test_pieces_of_two_reservations_are_not_merged(emu):
    provider = CudaVmmProvider(reserve=UNIT)
    ptrs = sorted(provider.alloc(UNIT) for _ in range(8))
    touching = [(low, high) for low, high in itertools.pairwise(ptrs) if high - low == UNIT]
    for low, high in touching:
        with pytest.raises(InvalidArgument, match="different allocations"):
            provider.merge(low, high, 2 * UNIT)
    for ptr in ptrs:
        provider.free(ptr, UNIT)
    provider.close()


def test_peers_get_access(emu):
    provider = CudaVmmProvider(0, peers=[1, 1, 0])
    ptr = provider.alloc(UNIT)
    other = CudaProvider(1)
    other.copy(ptr, b"peer", 4)
    seen = bytearray(4)
    provider.copy(seen, ptr, 4)
    assert seen == b"peer"
    assert emu.calls["cuMemSetAccess"] == 1
    provider.free(ptr, UNIT)
    provider.close()
    other.close()
    with pytest.raises(InvalidArgument, match="no CUDA device 7"):
        CudaVmmProvider(0, peers=[7])


def test_a_device_that_cannot(emu, monkeypatch):
    original = CudaDriver.call
    lacks = driver.CUdevice_attribute

    def without(*missing):
        def call(self, name, *args):
            if name == "cuDeviceGetAttribute" and args[0] in missing:
                return 0
            if name == "cuDeviceCanAccessPeer":
                return 0
            return original(self, name, *args)

        monkeypatch.setattr(CudaDriver, "call", call)

    without(lacks.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
    with pytest.raises(NotSupported, match="no virtual memory management"):
        CudaVmmProvider()
    without()
    with pytest.raises(NotSupported, match="cannot reach"):
        CudaVmmProvider(0, peers=[1])
    without(lacks.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
    provider = CudaVmmProvider()
    assert Capability.IPC not in provider.capabilities
    ptr = provider.alloc(UNIT)
    with pytest.raises(NotSupported, match="file descriptors"):
        provider.ipc_export(ptr, UNIT)
    provider.free(ptr, UNIT)
    provider.close()


def test_the_device_is_waited_for_before_memory_goes(provider, emu):
    ptr = provider.alloc(UNIT)
    target = provider.reserve(UNIT)
    for step in (
        lambda: provider.dalloc(ptr, UNIT),
        lambda: provider.remap([(ptr, UNIT)], target, UNIT),
        lambda: provider.decommit(target, UNIT),
        lambda: provider.free(provider.alloc(UNIT), UNIT),
    ):
        emu.reset_calls()
        step()
        assert emu.calls["cuCtxSynchronize"] == 1
    provider.free(ptr, UNIT)
    provider.free(target, UNIT)


def test_close_waits_for_live_memory_and_can_be_tried_again(emu):
    provider = CudaVmmProvider()
    ptr = provider.alloc(UNIT)
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.alloc(UNIT)
    provider.zero(ptr, UNIT)
    emu.fail("cuMemRelease", error=UNKNOWN)
    provider.free(ptr, UNIT)
    assert provider.live_count() == 0
    assert "handles" in emu.leaks()
    emu.fail("cuMemAddressFree", error=UNKNOWN)
    with pytest.raises(DriverError, match="cuMemAddressFree"):
        provider.close()
    provider.close()


def test_a_child_that_was_forked_is_told():
    program = """
import os, umfpy
emu = umfpy.emulate("cuda", memory="1GiB")
provider = umfpy.CudaVmmProvider()
pooled = umfpy.CudaAsyncProvider()
at, other = provider.alloc(4096), pooled.alloc(4096)
read, write = os.pipe()
if not os.fork():
    for call in (lambda: provider.alloc(1), lambda: provider.free(at, 4096),
                 lambda: pooled.alloc(1), lambda: pooled.free(other, 4096)):
        try:
            call()
        except umfpy.DriverUnavailable as error:
            os.write(write, b"told " if "forked" in str(error) else b"?")
    del provider, pooled
    os._exit(0)
os.wait()
provider.free(at, 4096)
pooled.free(other, 4096)
provider.close(), pooled.close()
print(os.read(read, 100).decode(), emu.leaks())
"""
    assert run_python(program) == "told told told told  {}"


def test_a_provider_that_is_dropped_lets_everything_go(emu):
    provider = CudaVmmProvider()
    provider.free(provider.alloc(8 * MIB), 8 * MIB)
    del provider


def test_a_pool_on_it(emu):
    provider = CudaVmmProvider()
    with umfpy.Pool(provider) as pool:
        blocks = [pool.allocate(3 * MIB) for _ in range(50)]
        del blocks
        pool.trim()
        assert pool.stats().reserved_bytes == 0
    assert provider.live_count() == 0
    provider.close()


def test_the_face():
    assert umfpy.CudaVmmProvider is CudaVmmProvider
    assert issubclass(DriverUnavailable, umfpy.UmfpyError)
