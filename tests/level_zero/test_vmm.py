"""LevelZeroVmmProvider: what the driver is asked to do; `tests/vmm` has what all drivers share."""

from __future__ import annotations

import pytest

from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.level_zero import LevelZeroVmmProvider, pages, vmm_driver
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.driver import LevelZeroDriver

MIB = 1 << 20
SMALL_PAGE, UNIT = 64 << 10, 2 * MIB
UNKNOWN = Result.ZE_RESULT_ERROR_UNKNOWN


@pytest.fixture
def provider(emu):
    provider = LevelZeroVmmProvider()
    yield provider
    provider.close()


def read(provider, ptr, size):
    data = bytearray(size)
    provider.copy(data, ptr, size)
    return bytes(data)


def physical(emu):
    """Bytes of physical memory that are alive."""
    return sum(item.size for item in emu.live().get("handles", []))


def mapped(provider):
    return provider.reserved_bytes - provider.kept_bytes


@pytest.mark.parametrize("size", [SMALL_PAGE, 1 * MIB, 8 * MIB])
def test_a_fixed_chunk_size(emu, size):
    provider = LevelZeroVmmProvider(chunk_size=size)
    assert provider.granularity(1) == provider.recommended_granularity() == size
    ptr = provider.alloc(3 * size + 1)
    assert [chunk.size for chunk in provider.chunks(ptr, 3 * size + 1)] == [size] * 4
    provider.split(ptr, 3 * size + 1, size)
    provider.decommit(ptr, size)
    provider.commit(ptr, size)
    assert provider.extend(ptr + size, 2 * size + 1, size)
    provider.free(ptr, size)
    provider.free(ptr + size, 3 * size + 1)
    provider.close()


def test_chunk_sizes_that_are_not_possible(emu):
    before = emu.leaks()
    with pytest.raises(InvalidArgument, match="power of two"):
        LevelZeroVmmProvider(chunk_size="6MiB")
    with pytest.raises(InvalidArgument, match=rf"\({SMALL_PAGE} bytes\)"):
        LevelZeroVmmProvider(chunk_size="32KiB")
    with pytest.raises(InvalidArgument, match="at most what this device has"):
        LevelZeroVmmProvider(chunk_size=1 << 62)
    assert emu.leaks() == before


def test_no_chunk_is_larger_than_its_page_allows(emu, monkeypatch):
    """A driver whose pages grow on: no chunk is of a size that would need a larger one."""
    original = pages.page_size

    def growing(driver, context, device, size):
        return 128 * MIB if size >= 256 * MIB else original(driver, context, device, size)

    monkeypatch.setattr("umfpy.providers.level_zero.base.page_size", growing)
    provider = LevelZeroVmmProvider()
    assert provider.granularity() == UNIT
    ptr = provider.alloc(1 << 30)
    assert {chunk.size for chunk in provider.chunks(ptr, 1 << 30)} == {128 * MIB}
    provider.free(ptr, 1 << 30)
    provider.close()


def test_calls_of_an_allocation(provider, emu):
    for size in (1, 3 * MIB, 128 * MIB, (1 << 30) + 1):
        provider.trim()
        emu.reset_calls()
        ptr = provider.alloc(size)
        made = len(provider.chunks(ptr, size))
        assert made == emu.calls["zePhysicalMemCreate"] == emu.calls["zeVirtualMemMap"] <= 16
        assert emu.calls["zeVirtualMemSetAccessAttribute"] == 0
        assert physical(emu) == -(-size // UNIT) * UNIT
        provider.free(ptr, size)
        assert emu.calls["zeVirtualMemUnmap"] == made


def test_addresses_are_reserved_once(provider, emu):
    emu.reset_calls()
    ptrs = [provider.alloc(3 * MIB) for _ in range(10)]
    for ptr in ptrs:
        provider.free(ptr, 3 * MIB)
    assert emu.calls["zeVirtualMemReserve"] == 1
    assert emu.calls["zeVirtualMemFree"] == 0


def test_a_driver_that_takes_no_proposal(provider, emu, monkeypatch):
    """The driver may reserve elsewhere; the alignment is found inside of what it gives."""
    original = LevelZeroDriver.make

    def elsewhere(driver, name, *args):
        if name == "zeVirtualMemReserve":
            context, hint, length = args
            args = context, hint + UNIT, length
        return original(driver, name, *args)

    monkeypatch.setattr(LevelZeroDriver, "make", elsewhere)
    ptr = provider.alloc(UNIT, 64 * MIB)
    assert ptr % (64 * MIB) == 0
    provider.free(ptr, UNIT)


def test_a_reservation_at_half_a_page_is_refused(provider, emu, monkeypatch):
    original = LevelZeroDriver.make

    def half(driver, name, *args):
        found = original(driver, name, *args)
        return found + SMALL_PAGE if name == "zeVirtualMemReserve" else found

    def whole(driver, name, *args):
        if name == "zeVirtualMemFree":
            args = args[0], args[1] - SMALL_PAGE, args[2]
        return call(driver, name, *args)

    call = LevelZeroDriver.call
    monkeypatch.setattr(LevelZeroDriver, "make", half)
    monkeypatch.setattr(LevelZeroDriver, "call", whole)
    before = emu.live().get("reservations")
    with pytest.raises(DriverError, match="no multiple of the page, 2097152 bytes"):
        provider.alloc(UNIT)
    assert emu.live().get("reservations") == before


@pytest.mark.parametrize("error", [UNKNOWN, Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE])
def test_short_of_addresses_only_what_is_needed_is_reserved(provider, emu, error):
    emu.fail("zeVirtualMemReserve", error=error)
    if error == UNKNOWN:
        with pytest.raises(DriverError, match="zeVirtualMemReserve"):
            provider.alloc(UNIT)
        return
    ptr = provider.alloc(UNIT)
    assert [item.size for item in emu.live()["reservations"]] == [UNIT]
    provider.free(ptr, UNIT)


def test_a_proposal_is_vacant():
    system = vmm_driver.System("level_zero")
    assert vmm_driver._vacant(system, 3 * UNIT, 64 * MIB) % (64 * MIB) == 0


def test_decommit_gives_memory_back_and_commit_brings_zeros(provider, emu):
    ptr = provider.alloc(2 * UNIT)
    provider.copy(ptr, b"data", 4)
    provider.decommit(ptr, 2 * UNIT)
    provider.trim()
    assert physical(emu) == 0
    assert provider.properties(ptr)["committed"] is False
    with pytest.raises(InvalidArgument, match="commit them first"):
        provider.zero(ptr, 4)
    with pytest.raises(InvalidArgument, match="commit them first"):
        read(provider, ptr + UNIT - 2, 4)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.purge_force(ptr, 2 * UNIT)
    provider.decommit(ptr, 2 * UNIT)
    emu.reset_calls()
    provider.commit(ptr, 2 * UNIT)
    # Nobody promises that fresh physical memory is zero; on the emulated device it is.
    assert emu.calls["zeCommandListAppendMemoryFill"] == 1
    assert emu.calls["zePhysicalMemCreate"] == 2
    assert read(provider, ptr, 4) == bytes(4)
    provider.copy(ptr, b"kept", 4)
    provider.commit(ptr, 2 * UNIT)
    assert emu.calls["zePhysicalMemCreate"] == 2
    assert read(provider, ptr, 4) == b"kept"
    provider.free(ptr, 2 * UNIT)


def test_what_is_kept_serves_again_and_is_cleared(provider, emu):
    ptr = provider.alloc(4 * UNIT)
    provider.copy(ptr, b"x" * 4 * UNIT, 4 * UNIT)
    provider.decommit(ptr, 4 * UNIT)
    assert provider.kept_bytes == 4 * UNIT
    emu.reset_calls()
    provider.commit(ptr, 4 * UNIT)
    assert emu.calls["zePhysicalMemCreate"] == 0
    assert read(provider, ptr, 4 * UNIT) == bytes(4 * UNIT)
    provider.decommit(ptr, 4 * UNIT)
    emu.reset_calls()
    provider.commit(ptr, 4 * UNIT, clear=False)
    assert emu.calls["zeCommandListAppendMemoryFill"] == emu.calls["zePhysicalMemCreate"] == 0
    provider.free(ptr, 4 * UNIT)


def test_what_is_kept_is_bounded_and_goes_before_memory_runs_out(provider, emu):
    ptr = provider.alloc(1 << 30)
    provider.free(ptr, 1 << 30)
    assert provider.kept_bytes <= (4 << 30) // 64
    small = [provider.alloc(8 * MIB) for _ in range(4)]
    for ptr in small:
        provider.free(ptr, 8 * MIB)
    assert provider.kept_bytes
    everything = provider.alloc(4 << 30)
    assert provider.reserved_bytes == physical(emu) == 4 << 30
    provider.free(everything, 4 << 30)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("call", ["zeVirtualMemMap", "zeVirtualMemUnmap"])
def test_a_remap_that_fails_half_way_changes_nothing(provider, emu, call, nth):
    ptr = provider.alloc(4 * UNIT)
    data = b"data" * UNIT
    provider.copy(ptr, data, 4 * UNIT)
    target = provider.reserve(4 * UNIT)
    before = provider.chunks(ptr, 4 * UNIT)
    emu.fail(call, nth=nth, error=UNKNOWN)
    with pytest.raises(DriverError, match=call):
        provider.remap([(ptr, 4 * UNIT)], target, 4 * UNIT)
    assert provider.chunks(ptr, 4 * UNIT) == before
    assert provider.chunks(target, 4 * UNIT) == []
    assert read(provider, ptr, 4 * UNIT) == data
    provider.remap([(ptr, 4 * UNIT)], target, 4 * UNIT)
    provider.free(ptr, 4 * UNIT)
    provider.free(target, 4 * UNIT)


@pytest.mark.refuses("zeCommandListAppendMemoryFill", Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
def test_the_driver_knows_what_is_inaccessible(provider, emu):
    ptr = provider.alloc(UNIT)
    provider.dalloc(ptr, UNIT)
    with pytest.raises(DriverError, match="zeCommandListAppendMemoryFill"):
        provider._contents.zero(ptr, 16, None)
    provider.free(ptr, UNIT)


@pytest.mark.refuses("zeCommandListAppendMemoryFill", Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
def test_what_is_hidden_is_so_again_after_a_failure(provider, emu):
    """A hidden chunk that was unmapped and had to come back: still nobody gets at it."""
    ptr = provider.alloc(2 * UNIT)
    provider.dalloc(ptr, 2 * UNIT)
    emu.fail("zeVirtualMemUnmap", nth=2, error=UNKNOWN)
    with pytest.raises(DriverError, match="zeVirtualMemUnmap"):
        provider.decommit(ptr, 2 * UNIT)
    with pytest.raises(DriverError, match="zeCommandListAppendMemoryFill"):
        provider._contents.zero(ptr, 16, None)
    provider.commit(ptr, 2 * UNIT)
    provider.zero(ptr, 2 * UNIT)
    provider.free(ptr, 2 * UNIT)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("call", ["zePhysicalMemCreate", "zeVirtualMemMap"])
def test_an_allocation_that_fails_half_way_leaves_nothing(provider, emu, call, nth):
    emu.fail(call, nth=nth, error=Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(OutOfMemoryError, match=f"{call} failed .*out of device memory"):
        provider.alloc(4 * UNIT)
    assert mapped(provider) == provider.live_count() == 0
    assert not emu.live().get("mappings")


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_commit_that_fails_half_way_leaves_it_decommitted(provider, emu, nth):
    ptr = provider.reserve(4 * UNIT)
    calls = ["zePhysicalMemCreate", "zeVirtualMemMap"]
    # What lies side by side is cleared at once.
    for call in [*calls, "zeCommandListAppendMemoryFill"] if nth == 1 else calls:
        emu.fail(call, nth=nth, error=UNKNOWN)
        with pytest.raises(DriverError, match=call):
            provider.commit(ptr, 4 * UNIT)
        assert mapped(provider) == 0
        assert provider.properties(ptr)["committed"] is False
        provider.trim()
    provider.commit(ptr, 4 * UNIT)
    provider.free(ptr, 4 * UNIT)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_what_fails_half_way_keeps_contents(provider, emu, nth):
    ptr = provider.alloc(4 * UNIT)
    data = b"data" * UNIT
    provider.copy(ptr, data, 4 * UNIT)
    emu.fail("zeVirtualMemUnmap", nth=nth, error=UNKNOWN)
    for method in (provider.decommit, provider.free):
        with pytest.raises(DriverError, match="zeVirtualMemUnmap"):
            method(ptr, 4 * UNIT)
        assert read(provider, ptr, 4 * UNIT) == data
        emu.fail("zeVirtualMemUnmap", nth=nth, error=UNKNOWN)
    emu.clear_faults()
    emu.fail("zeVirtualMemSetAccessAttribute", nth=nth, error=UNKNOWN)
    with pytest.raises(DriverError, match="zeVirtualMemSetAccessAttribute"):
        provider.dalloc(ptr, 4 * UNIT)
    assert read(provider, ptr, 4 * UNIT) == data
    provider.free(ptr, 4 * UNIT)


@pytest.mark.parametrize("call", ["zePhysicalMemDestroy", "zeVirtualMemFree"])
def test_what_cannot_be_given_back_now_is_at_close(emu, call):
    provider = LevelZeroVmmProvider()
    ptr = provider.alloc((1 << 30) + UNIT)
    emu.fail(call, error=UNKNOWN)
    provider.free(ptr, (1 << 30) + UNIT)
    assert provider.live_count() == 0
    emu.clear_faults()
    emu.fail(call, error=UNKNOWN)
    with pytest.raises(DriverError, match=call):
        provider.close()
    provider.close()


def test_memory_that_could_not_be_cleared_is_cleared_later(provider, emu):
    """Neither clearing nor giving back works: what is there is still not taken for clean."""
    dirty = provider.alloc(UNIT)
    provider.copy(dirty, b"x" * UNIT, UNIT)
    ptr = provider.alloc(UNIT)
    provider.decommit(ptr, UNIT)
    provider.free(dirty, UNIT)
    emu.fail("zeCommandListAppendMemoryFill", error=UNKNOWN)
    emu.fail("zeVirtualMemUnmap", error=UNKNOWN)
    with pytest.raises(DriverError, match="zeCommandListAppendMemoryFill"):
        provider.commit(ptr, UNIT)
    emu.clear_faults()
    emu.reset_calls()
    provider.commit(ptr, UNIT)
    assert emu.calls["zeCommandListAppendMemoryFill"] == 1
    assert read(provider, ptr, UNIT) == bytes(UNIT)
    provider.free(ptr, UNIT)


def test_out_of_memory_says_what_the_device_has(provider):
    for size in (5 << 30, 1 << 46):
        with pytest.raises(OutOfMemoryError, match=f"{4 << 30} bytes in all") as caught:
            provider.alloc(size)
        assert (caught.value.requested, caught.value.provider) == (size, "level_zero_vmm")
    ptr = provider.alloc(4 << 30)
    with pytest.raises(OutOfMemoryError):
        provider.alloc(UNIT)
    provider.free(ptr, 4 << 30)


def test_there_is_no_ipc(provider):
    assert Capability.IPC not in provider.capabilities
    ptr = provider.alloc(UNIT)
    with pytest.raises(NotSupported, match="no IPC"):
        provider.ipc_export(ptr, UNIT)
    provider.free(ptr, UNIT)
