"""Taking memory, its contents, and what happens when the driver fails."""

from __future__ import annotations

import ctypes
import threading

import pytest

import umfpy
from tests.fakes.programs import run_program
from tests.opencl.support import Kind, pattern
from umfpy import (
    Capability,
    CoarseProvider,
    DriverError,
    InvalidArgument,
    NotSupported,
    OpenCLProvider,
    OutOfMemoryError,
    Pool,
)

MIB = 1 << 20


def read(provider: OpenCLProvider, ptr: int, size: int) -> bytes:
    data = bytearray(size)
    provider.copy(data, ptr, size)
    return bytes(data)


def test_sizes_beyond_the_device_are_out_of_memory_with_its_limits(
    provider: OpenCLProvider,
) -> None:
    largest = provider.context.devices[0].max_mem_alloc_size
    with pytest.raises(OutOfMemoryError, match=f"at most {largest} in one allocation") as caught:
        provider.alloc(1 << 45)
    assert caught.value.requested == 1 << 45
    assert caught.value.provider == "opencl"
    native = provider.native_error()
    assert native.name.startswith("CL_")
    assert native.code < 0
    assert native.name in str(caught.value)


def test_other_failures_are_driver_errors_with_opencls_name(provider: OpenCLProvider) -> None:
    cl = pytest.importorskip("pyopencl")
    read_and_write_only = cl.mem_flags.READ_ONLY | cl.mem_flags.WRITE_ONLY
    with pytest.raises(DriverError, match="CL_INVALID_VALUE") as caught:
        provider._driver.call(cl.Buffer, provider.context, read_and_write_only, 64)
    assert (caught.value.code, caught.value.name) == (-30, "CL_INVALID_VALUE")
    assert provider.native_error().name == "CL_INVALID_VALUE"


def test_native_errors_are_each_threads_own(provider: OpenCLProvider) -> None:
    seen = []

    def fail() -> None:
        with pytest.raises(OutOfMemoryError):
            provider.alloc(1 << 45)
        seen.append(provider.native_error())

    thread = threading.Thread(target=fail)
    thread.start()
    thread.join()
    assert seen[0] is not None
    assert provider.native_error() is None


def test_every_failure_of_a_call_leaves_everything_as_it_was(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = kind.provider()
    kept = provider.alloc(1000)
    data = pattern(1000)
    provider.copy(kept, data, 1000)
    call = provider._driver.call
    left = [0]

    def failing(function: object, *args: object, **options: object) -> object:
        left[0] -= 1
        if left[0] == 0:
            raise DriverError("clAnything", -9999)
        return call(function, *args, **options)

    monkeypatch.setattr(provider._driver, "call", failing)
    for steps in range(1, 10):
        left[0] = steps
        before = provider.live_count(), provider.memory_info()
        try:
            ptr = provider.alloc(5000, 4096)
        except DriverError:
            assert (provider.live_count(), provider.memory_info()) == before
            continue
        left[0] = 0
        provider.free(ptr, 5000)
        if steps > 1:
            break
    else:
        pytest.fail("alloc never got through")
    left[0] = 1
    with pytest.raises(DriverError):
        provider.free(kept, 1000)
    assert provider.live_count() == 1
    left[0] = 0
    assert read(provider, kept, 1000) == data
    provider.free(kept, 1000)
    assert provider.live_count() == 0


def test_contents_of_neighbours_in_one_buffer_stay(provider: OpenCLProvider) -> None:
    with Pool(provider) as pool:
        unit = provider.granule
        pieces = [pool.allocate(unit) for _ in range(50)]
        expected = [pattern(unit) for _ in pieces]
        for piece, data in zip(pieces, expected, strict=True):
            provider.copy(piece.ptr, data, unit)
        for changed in range(0, 50, 3):
            provider.zero(pieces[changed].ptr + 5, unit - 9)
            expected[changed] = expected[changed][:5] + bytes(unit - 9) + expected[changed][-4:]
        for source in range(1, 48, 3):
            provider.copy(pieces[source + 1].ptr + 3, pieces[source].ptr + 1, 60)
            target, data = expected[source + 1], expected[source]
            expected[source + 1] = target[:3] + data[1:61] + target[63:]
        assert [read(provider, piece.ptr, unit) for piece in pieces] == expected
        del pieces, piece


@pytest.mark.parametrize("size", [1, 15, 16, 17, 4096, 100_001])
def test_zero_of_any_size_at_any_offset(provider: OpenCLProvider, size: int) -> None:
    whole = size + 64
    ptr = provider.alloc(whole)
    for offset in (0, 1, 13, 16, 32):
        data = pattern(whole)
        provider.copy(ptr, data, whole)
        provider.zero(ptr + offset, size)
        assert read(provider, ptr, whole) == data[:offset] + bytes(size) + data[offset + size :]
    provider.free(ptr, whole)


def test_nothing_of_nothing_is_fine_and_less_is_refused(provider: OpenCLProvider) -> None:
    ptr = provider.alloc(64)
    provider.zero(ptr, 0)
    provider.copy(ptr, b"", 0)
    for call in (lambda: provider.zero(ptr, -1), lambda: provider.copy(ptr, b"", -1)):
        with pytest.raises(InvalidArgument, match="negative"):
            call()
    with pytest.raises(InvalidArgument, match="both sides"):
        provider.copy(bytearray(8), b"12345678", 8)
    with pytest.raises(InvalidArgument, match="too small"):
        provider.copy(ptr, b"1234", 8)
    with pytest.raises(InvalidArgument, match="no writable"):
        provider.copy(b"12345678", ptr, 8)
    provider.free(ptr, 64)


def test_host_access_is_announced_for_what_the_host_may_touch(provider: OpenCLProvider) -> None:
    touched = provider.memory_type in ("shared", "host")
    assert (Capability.HOST_ACCESS in provider.capabilities) == touched
    if touched:
        ptr = provider.alloc(256)
        ctypes.memset(ptr, 0x5A, 256)
        assert read(provider, ptr, 256) == b"\x5a" * 256
        provider.free(ptr, 256)


def test_addresses_of_buffers_stop_whoever_follows_them(kind: Kind) -> None:
    if kind.mode != "buffer":
        assert kind.provider().mode == kind.mode
        return
    done = run_program(
        f"""
        import ctypes, resource, umfpy
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        provider = umfpy.OpenCLProvider({kind.device}, mode="buffer")
        ptr = provider.alloc(128)
        print("here", flush=True)
        ctypes.string_at(ptr, 1)
        """
    )
    assert done.stdout.strip() == "here"
    assert done.returncode == -11


def test_addresses_of_buffers_are_given_back(kind: Kind) -> None:
    if kind.mode != "buffer":
        return
    provider = kind.provider()
    reserved = provider._source._addresses._reserved
    pointers = [provider.alloc(size, 1 << 21) for size in (1, 4096, 5000)]
    assert all(ptr % (1 << 21) == 0 for ptr in pointers)
    assert len(reserved) == 3
    for ptr, size in zip(pointers, (1, 4096, 5000), strict=True):
        provider.free(ptr, size)
    assert not reserved


def test_ipc_is_refused_with_the_reason(provider: OpenCLProvider) -> None:
    for pool in (Pool(provider), umfpy.ProxyPool(CoarseProvider(provider))):
        allocation = pool.allocate(4096)
        with pytest.raises(NotSupported, match="OpenCL has no calls that share memory"):
            allocation.ipc_handle()
        allocation.free()
        pool.close()
        if isinstance(pool.provider, CoarseProvider):
            pool.provider.close()
    with pytest.raises(NotSupported, match="OpenCL has no calls"):
        provider.ipc_open(b"")
    with pytest.raises(NotSupported, match="OpenCL has no calls"):
        OpenCLProvider.for_ipc("")


def test_a_closed_provider_takes_memory_back_and_gives_none(provider: OpenCLProvider) -> None:
    ptr = provider.alloc(64)
    provider.close()
    with pytest.raises(InvalidArgument, match="closed"):
        provider.alloc(64)
    provider.free(ptr, 64)


def test_find_tells_the_context_and_the_providers_own_properties(provider: OpenCLProvider) -> None:
    pool = Pool(provider)
    allocation = pool.allocate(5000)
    for address in (allocation.ptr, allocation.ptr + 4999):
        found = umfpy.find(address)
        assert (found.base, found.size, found.id) == (allocation.ptr, 5000, allocation.id)
        assert (found.pool, found.provider) == (pool, provider)
        assert (found.memory_type, found.device) == (provider.memory_type, provider.device)
        assert found.context is provider.context
        assert found.properties["mode"] == provider.mode
        assert found.properties["opencl_device"] == provider.context.devices[0]
    assert umfpy.find(allocation.ptr + 5000) is None
    assert provider.properties(8) == {}
    allocation.free()
    pool.close()
    assert found.properties == {}
    assert found.context is None
