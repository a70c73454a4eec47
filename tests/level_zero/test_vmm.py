"""LevelZeroVmmProvider on emulated devices: chunks that come and go."""

from __future__ import annotations

import pytest

from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.level_zero import LevelZeroVmmProvider, reservation
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.driver import LevelZeroDriver

MIB = 1 << 20
PAGE, LARGE_PAGE = 64 << 10, 2 * MIB
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


def test_units_follow_the_drivers_pages_and_the_size(provider, emu):
    assert provider.granularity() == PAGE
    assert provider.granularity(MIB) == PAGE
    assert provider.granularity(LARGE_PAGE) == LARGE_PAGE
    assert provider.granularity(1 << 30) == 16 * MIB
    assert provider.recommended_granularity() == LARGE_PAGE
    assert provider.recommended_granularity(1 << 30) == 16 * MIB


def test_an_allocation_costs_a_bounded_number_of_calls(provider, emu):
    for size in (1, PAGE, 3 * MIB, 128 * MIB, (1 << 30) + 1):
        emu.reset_calls()
        ptr = provider.alloc(size)
        made = emu.calls["zePhysicalMemCreate"]
        assert made == -(-size // provider.granularity(size)) <= 128
        assert emu.calls["zeVirtualMemMap"] == made
        assert emu.calls["zeVirtualMemReserve"] == 1
        assert physical(emu) < size + size // 32 + LARGE_PAGE
        provider.free(ptr, size)
        assert emu.calls["zePhysicalMemDestroy"] == emu.calls["zeVirtualMemUnmap"] == made
        assert emu.calls["zeVirtualMemFree"] == 1


@pytest.mark.parametrize("alignment", [0, 4096, 4 * MIB, 1 << 30])
def test_alignment(provider, emu, alignment):
    ptrs = [provider.alloc(3 * PAGE, alignment) for _ in range(3)]
    for ptr in ptrs:
        assert ptr % max(alignment, PAGE) == 0
        provider.free(ptr, 3 * PAGE)


def test_a_driver_that_takes_no_proposal_reserves_more(provider, emu, monkeypatch):
    """The driver may reserve elsewhere; then the alignment is found inside a larger range."""
    original = LevelZeroDriver.make

    def elsewhere(driver, name, *args):
        if name == "zeVirtualMemReserve":
            context, hint, length = args
            args = context, hint + LARGE_PAGE, length
        return original(driver, name, *args)

    monkeypatch.setattr(LevelZeroDriver, "make", elsewhere)
    emu.reset_calls()
    ptr = provider.alloc(PAGE, 64 * MIB)
    assert ptr % (64 * MIB) == 0
    assert emu.calls["zeVirtualMemReserve"] == 2
    provider.free(ptr, PAGE)
    assert emu.calls["zeVirtualMemFree"] == 2


def test_pieces_give_back_their_memory_and_the_last_one_the_addresses(provider, emu):
    ptr = provider.alloc(8 * LARGE_PAGE)
    provider.split(ptr, 8 * LARGE_PAGE, 2 * LARGE_PAGE)
    provider.split(ptr + 2 * LARGE_PAGE, 6 * LARGE_PAGE, 5 * LARGE_PAGE)
    provider.free(ptr + 2 * LARGE_PAGE, 5 * LARGE_PAGE)
    assert physical(emu) == 3 * LARGE_PAGE
    provider.free(ptr, 2 * LARGE_PAGE)
    emu.reset_calls()
    provider.free(ptr + 7 * LARGE_PAGE, LARGE_PAGE)
    assert emu.calls["zeVirtualMemFree"] == 1
    assert physical(emu) == 0


def test_a_ragged_end_belongs_to_the_last_piece(provider, emu):
    size = 3 * PAGE + 100
    ptr = provider.alloc(size)
    provider.split(ptr, size, 3 * PAGE)
    provider.free(ptr, 3 * PAGE)
    assert physical(emu) == PAGE
    provider.free(ptr + 3 * PAGE, 100)


def test_splits_at_chunks_only(provider):
    ptr = provider.alloc(8 * LARGE_PAGE)
    for first in (PAGE, LARGE_PAGE + 1, 0, 8 * LARGE_PAGE):
        with pytest.raises(InvalidArgument, match="multiple of"):
            provider.split(ptr, 8 * LARGE_PAGE, first)
    with pytest.raises(InvalidArgument):
        provider.split(1 << 20, LARGE_PAGE, PAGE)
    provider.free(ptr, 8 * LARGE_PAGE)


def test_two_allocations_that_touch_are_not_merged(provider, monkeypatch):
    low = provider.alloc(2 * LARGE_PAGE)
    provider.free(low, 2 * LARGE_PAGE)
    proposals = [low, low + LARGE_PAGE]
    monkeypatch.setattr(reservation, "_vacant", lambda *arguments: proposals.pop(0))
    assert provider.alloc(LARGE_PAGE) == low
    high = provider.alloc(LARGE_PAGE)
    assert high == low + LARGE_PAGE
    with pytest.raises(InvalidArgument, match="different allocations"):
        provider.merge(low, high, 2 * LARGE_PAGE)
    provider.free(low, LARGE_PAGE)
    provider.free(high, LARGE_PAGE)


def test_decommit_gives_memory_back_and_commit_brings_zeros(provider, emu):
    ptr = provider.alloc(2 * LARGE_PAGE)
    provider.copy(ptr, b"data", 4)
    provider.decommit(ptr, 2 * LARGE_PAGE)
    assert physical(emu) == 0
    assert provider.properties(ptr)["committed"] is False
    with pytest.raises(InvalidArgument, match="commit them first"):
        provider.zero(ptr, 4)
    with pytest.raises(InvalidArgument, match="commit them first"):
        read(provider, ptr + LARGE_PAGE - 2, 4)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.purge_force(ptr, 2 * LARGE_PAGE)
    provider.decommit(ptr, 2 * LARGE_PAGE)
    emu.reset_calls()
    provider.commit(ptr, 2 * LARGE_PAGE)
    # Nobody promises that fresh physical memory is zero; on the emulated device it is.
    assert emu.calls["zeCommandListAppendMemoryFill"] == emu.calls["zePhysicalMemCreate"] == 2
    assert read(provider, ptr, 4) == bytes(4)
    provider.copy(ptr, b"kept", 4)
    provider.commit(ptr, 2 * LARGE_PAGE)
    assert emu.calls["zePhysicalMemCreate"] == 2
    assert read(provider, ptr, 4) == b"kept"
    provider.free(ptr, 2 * LARGE_PAGE)


def test_dalloc_keeps_memory_and_contents(provider, emu):
    ptr = provider.alloc(4 * PAGE)
    provider.copy(ptr, b"data", 4)
    provider.dalloc(ptr, 4 * PAGE)
    assert physical(emu) == 4 * PAGE
    with pytest.raises(InvalidArgument, match="commit them first"):
        provider.copy(ptr, b"none", 4)
    provider.commit(ptr, 4 * PAGE)
    assert read(provider, ptr, 4) == b"data"
    provider.dalloc(ptr, 4 * PAGE)
    provider.decommit(ptr, 4 * PAGE)
    provider.commit(ptr, 4 * PAGE)
    assert read(provider, ptr, 4) == bytes(4)
    provider.free(ptr, 4 * PAGE)


def test_the_driver_knows_what_is_inaccessible(provider, emu):
    ptr = provider.alloc(PAGE)
    provider.dalloc(ptr, PAGE)
    with pytest.raises(DriverError, match="zeCommandListAppendMemoryFill"):
        provider._contents.zero(ptr, 16, None)
    provider.free(ptr, PAGE)


def test_a_mixed_piece_gets_back_what_each_part_had(provider, emu):
    ptr = provider.alloc(2 * PAGE)
    provider.copy(ptr, b"x" * (2 * PAGE), 2 * PAGE)
    provider.split(ptr, 2 * PAGE, PAGE)
    provider.dalloc(ptr, PAGE)
    provider.decommit(ptr + PAGE, PAGE)
    provider.merge(ptr, ptr + PAGE, 2 * PAGE)
    provider.commit(ptr, 2 * PAGE)
    assert read(provider, ptr, 2 * PAGE) == b"x" * PAGE + bytes(PAGE)
    provider.free(ptr, 2 * PAGE)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
@pytest.mark.parametrize("call", ["zePhysicalMemCreate", "zeVirtualMemMap"])
def test_an_allocation_that_fails_half_way_leaves_nothing(provider, emu, call, nth):
    emu.fail(call, nth=nth, error=Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)
    with pytest.raises(OutOfMemoryError, match=f"{call} failed .*out of device memory"):
        provider.alloc(4 * PAGE)
    assert set(emu.leaks()) <= {"contexts", "lists"}


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_a_commit_that_fails_half_way_leaves_it_decommitted(provider, emu, nth):
    ptr = provider.alloc(4 * PAGE)
    provider.decommit(ptr, 4 * PAGE)
    for call in ("zePhysicalMemCreate", "zeVirtualMemMap", "zeCommandListAppendMemoryFill"):
        emu.fail(call, nth=nth, error=UNKNOWN)
        with pytest.raises(DriverError, match=call):
            provider.commit(ptr, 4 * PAGE)
        assert physical(emu) == 0
        assert provider.properties(ptr)["committed"] is False
    provider.commit(ptr, 4 * PAGE)
    provider.free(ptr, 4 * PAGE)


@pytest.mark.parametrize("nth", [1, 2, 3, 4])
def test_what_fails_half_way_keeps_contents(provider, emu, nth):
    ptr = provider.alloc(4 * PAGE)
    data = b"data" * PAGE
    provider.copy(ptr, data, 4 * PAGE)
    emu.fail("zeVirtualMemUnmap", nth=nth, error=UNKNOWN)
    for method in (provider.decommit, provider.free):
        with pytest.raises(DriverError, match="zeVirtualMemUnmap"):
            method(ptr, 4 * PAGE)
        assert read(provider, ptr, 4 * PAGE) == data
        emu.fail("zeVirtualMemUnmap", nth=nth, error=UNKNOWN)
    emu.clear_faults()
    emu.fail("zeVirtualMemSetAccessAttribute", nth=nth, error=UNKNOWN)
    with pytest.raises(DriverError, match="zeVirtualMemSetAccessAttribute"):
        provider.dalloc(ptr, 4 * PAGE)
    assert read(provider, ptr, 4 * PAGE) == data
    provider.free(ptr, 4 * PAGE)


@pytest.mark.parametrize("call", ["zePhysicalMemDestroy", "zeVirtualMemFree"])
def test_what_cannot_be_given_back_now_is_at_close(emu, call):
    provider = LevelZeroVmmProvider()
    ptr = provider.alloc(2 * PAGE)
    emu.fail(call, error=UNKNOWN)
    provider.free(ptr, 2 * PAGE)
    assert provider.live_count() == 0
    assert set(emu.leaks()) - {"contexts"}
    emu.fail(call, error=UNKNOWN)
    with pytest.raises(DriverError, match=call):
        provider.close()
    provider.close()


def test_memory_that_could_not_be_cleared_is_cleared_later(provider, emu):
    """Neither clearing nor giving back works: what is there is still not taken for clean."""
    dirty = provider.alloc(PAGE)
    provider.copy(dirty, b"x" * PAGE, PAGE)
    ptr = provider.alloc(PAGE)
    provider.decommit(ptr, PAGE)
    provider.free(dirty, PAGE)
    emu.fail("zeCommandListAppendMemoryFill", error=UNKNOWN)
    emu.fail("zeVirtualMemUnmap", error=UNKNOWN)
    with pytest.raises(DriverError, match="zeCommandListAppendMemoryFill"):
        provider.commit(ptr, PAGE)
    emu.clear_faults()
    emu.reset_calls()
    provider.commit(ptr, PAGE)
    assert emu.calls["zeCommandListAppendMemoryFill"] == 1
    assert read(provider, ptr, PAGE) == bytes(PAGE)
    provider.free(ptr, PAGE)


def test_out_of_memory_says_what_the_device_has(provider):
    for size in (5 << 30, 1 << 46):
        with pytest.raises(OutOfMemoryError, match=f"{4 << 30} bytes in all") as caught:
            provider.alloc(size)
        assert (caught.value.requested, caught.value.provider) == (size, "level_zero_vmm")
    ptr = provider.alloc(4 << 30)
    with pytest.raises(OutOfMemoryError):
        provider.alloc(PAGE)
    provider.free(ptr, 4 << 30)


def test_there_is_no_ipc(provider):
    assert Capability.IPC not in provider.capabilities
    ptr = provider.alloc(PAGE)
    with pytest.raises(NotSupported, match="no IPC"):
        provider.ipc_export(ptr, PAGE)
    provider.free(ptr, PAGE)
