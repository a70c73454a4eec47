"""Residency on further devices: for existing and for future allocations, all or nothing."""

from __future__ import annotations

import threading

import pytest

from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError
from umfpy.providers.level_zero import LevelZeroProvider
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.residency import Residency

MIB = 1 << 20
LOST = Result.ZE_RESULT_ERROR_DEVICE_LOST


@pytest.fixture(params=["device", "host", "shared"])
def provider(emu, request):
    provider = LevelZeroProvider(0, request.param)
    yield provider
    provider.close()


def test_54_added_and_removed_for_existing_and_future_allocations(provider, emu):
    old = provider.alloc(MIB)
    assert emu.residency(old) == {}
    provider.add_resident_device(1)
    new = provider.alloc(MIB, 8 * MIB)
    assert provider.resident_devices == (1,)
    assert emu.residency(old) == emu.residency(new) == {1: 1}
    provider.add_resident_device(2)
    assert emu.residency(old) == emu.residency(new) == {1: 1, 2: 1}
    provider.remove_resident_device(1)
    assert provider.resident_devices == (2,)
    assert emu.residency(old) == emu.residency(new) == {2: 1}
    last = provider.alloc(MIB)
    assert emu.residency(last) == {2: 1}
    for ptr in (old, new, last):
        provider.free(ptr, MIB)


def test_54_devices_given_when_it_is_made(emu):
    uuid = LevelZeroProvider(2)
    provider = LevelZeroProvider(0, resident_devices=[1, uuid.ipc_scope()])
    uuid.close()
    ptr = provider.alloc(MIB)
    assert emu.residency(ptr) == {1: 1, 2: 1}
    provider.free(ptr, MIB)
    provider.close()


@pytest.mark.parametrize("nth", [1, 2])
def test_54_an_allocation_that_cannot_be_resident_is_freed(provider, emu, nth):
    provider.add_resident_device(1)
    provider.add_resident_device(2)
    emu.fail("zeContextMakeMemoryResident", nth=nth, error=LOST)
    emu.reset_calls()
    with pytest.raises(DriverError, match="zeContextMakeMemoryResident"):
        provider.alloc(MIB)
    assert (emu.calls["zeMemFree"], emu.calls["zeContextEvictMemory"]) == (1, nth - 1)
    assert provider.live_count() == 0
    ptr = provider.alloc(MIB)
    assert emu.residency(ptr) == {1: 1, 2: 1}
    provider.free(ptr, MIB)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_54_a_device_that_one_allocation_refuses_is_not_added(provider, emu, nth):
    ptrs = [provider.alloc(MIB) for _ in range(3)]
    emu.fail(
        "zeContextMakeMemoryResident", nth=nth, error=Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY
    )
    with pytest.raises(OutOfMemoryError, match="out of device memory"):
        provider.add_resident_device(1)
    assert provider.resident_devices == ()
    assert all(emu.residency(ptr) == {} for ptr in ptrs)
    provider.add_resident_device(1)
    assert all(emu.residency(ptr) == {1: 1} for ptr in ptrs)
    for ptr in ptrs:
        provider.free(ptr, MIB)


@pytest.mark.parametrize("nth", [1, 2, 3])
def test_54_a_device_that_one_allocation_keeps_is_not_removed(provider, emu, nth):
    provider.add_resident_device(1)
    ptrs = [provider.alloc(MIB) for _ in range(3)]
    emu.fail("zeContextEvictMemory", nth=nth, error=LOST)
    with pytest.raises(DriverError, match="zeContextEvictMemory"):
        provider.remove_resident_device(1)
    assert provider.resident_devices == (1,)
    assert all(emu.residency(ptr) == {1: 1} for ptr in ptrs)
    for ptr in ptrs:
        provider.free(ptr, MIB)


def test_a_free_that_fails_leaves_the_allocation_where_it_was(provider, emu):
    provider.add_resident_device(1)
    ptr = provider.alloc(MIB)
    emu.fail("zeMemFree", error=LOST)
    with pytest.raises(DriverError):
        provider.free(ptr, MIB)
    provider.remove_resident_device(1)
    assert emu.residency(ptr) == {}
    provider.free(ptr, MIB)


def test_devices_that_cannot_be_added_or_removed(provider, emu):
    with pytest.raises(InvalidArgument, match=r"device 1 .* is not a resident device; there"):
        provider.remove_resident_device(1)
    provider.add_resident_device(1)
    with pytest.raises(InvalidArgument, match="is a resident device already"):
        provider.add_resident_device(1)
    with pytest.raises(InvalidArgument, match="no Level Zero device is 3"):
        provider.add_resident_device(3)
    if provider.memory_type != "host":
        with pytest.raises(InvalidArgument, match="resident there already"):
            provider.add_resident_device(0)
    assert provider.resident_devices == (1,)


def test_a_device_of_another_driver_is_refused():
    home = Device(0, 1, 10, "one", "00", MIB)
    residency = Residency(None, None, home, at_home=True)
    with pytest.raises(InvalidArgument, match="no context has both"):
        residency.add(Device(1, 2, 20, "two", "01", MIB))


def test_changes_and_allocations_at_once_miss_nothing(emu):
    """Whatever is allocated while a device comes and goes ends up where all others are."""
    provider = LevelZeroProvider()
    kept, trouble = [], []

    def allocate():
        try:
            for _ in range(30):
                kept.append(provider.alloc(4096))
                provider.free(provider.alloc(4096), 4096)
        except (DriverError, InvalidArgument) as error:
            trouble.append(error)

    threads = [threading.Thread(target=allocate) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        provider.add_resident_device(1)
        provider.remove_resident_device(1)
    provider.add_resident_device(2)
    for thread in threads:
        thread.join()
    assert not trouble
    assert len(kept) == 120
    assert all(emu.residency(ptr) == {2: 1} for ptr in kept)
    for ptr in kept:
        provider.free(ptr, 4096)
    provider.close()
