"""Zeroing and copying: own lists, the caller's lists, and what is waited for."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from umfpy import Pool
from umfpy.errors import DriverError, DriverUnavailable, InvalidArgument
from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider, devices
from umfpy.providers.level_zero.constants import Flag, QueueMode, Result
from umfpy.providers.level_zero.structs import (
    ze_command_queue_desc_t,
    ze_command_queue_group_properties_t,
)

SIZE = 1 << 16
FILL, COPY = "zeCommandListAppendMemoryFill", "zeCommandListAppendMemoryCopy"
MAKERS = {
    "device": LevelZeroProvider,
    "host": lambda: LevelZeroProvider(0, "host"),
    "shared": lambda: LevelZeroProvider(0, "shared"),
    "virtual memory": LevelZeroVmmProvider,
}


@pytest.fixture(params=list(MAKERS))
def provider(emu, request):
    provider = MAKERS[request.param]()
    yield provider
    provider.close()


@pytest.fixture
def device(emu):
    provider = LevelZeroProvider()
    yield provider
    provider.close()


def new_list(provider, mode=QueueMode.ZE_COMMAND_QUEUE_MODE_ASYNCHRONOUS):
    description = ze_command_queue_desc_t(ordinal=0, mode=mode)
    where = provider.context, provider._device.handle
    return provider._driver.make("zeCommandListCreateImmediate", *where, description)


@pytest.fixture
def stream(provider):
    """An asynchronous immediate list of the caller's."""
    handle = new_list(provider)
    yield handle
    provider._driver.call("zeCommandListDestroy", handle)


def read(provider, ptr, size):
    data = bytearray(size)
    provider.copy(data, ptr, size)
    return bytes(data)


def test_copies_of_every_side(provider):
    array = np.arange(SIZE, dtype=np.uint8)
    first, second = provider.alloc(SIZE), provider.alloc(SIZE)
    provider.copy(first, array, SIZE)
    provider.copy(second, first, SIZE)
    back = np.zeros_like(array)
    provider.copy(back, second, SIZE)
    assert (back == array).all()
    provider.copy(second + 16, b"", 0)
    provider.zero(second + 7, 0)
    provider.zero(second + 1, 3)
    assert read(provider, second, 6) == bytes([0, 0, 0, 0, 4, 5])
    with pytest.raises(InvalidArgument, match="one must be an address"):
        provider.copy(back, array, 16)
    with pytest.raises(InvalidArgument, match="too small"):
        provider.copy(first, b"x", 2)
    with pytest.raises(InvalidArgument, match="no writable"):
        provider.copy(b"read-only", first, 2)
    for call in (lambda: provider.zero(first, -1), lambda: provider.copy(first, second, -1)):
        with pytest.raises(InvalidArgument, match="negative"):
            call()
    provider.free(first, SIZE)
    provider.free(second, SIZE)


def test_own_lists_are_kept_and_used_again(device, emu):
    ptr = device.alloc(SIZE)
    emu.reset_calls()
    for _ in range(5):
        device.zero(ptr, SIZE)
        device.zero(ptr, SIZE, stream=0)
        read(device, ptr, 16)
    assert emu.calls["zeCommandListCreateImmediate"] == 1
    assert (emu.calls[FILL], emu.calls[COPY]) == (10, 5)
    assert emu.calls["zeDeviceGetCommandQueueGroupProperties"] == 2
    device.free(ptr, SIZE)
    device.close()
    assert emu.calls["zeCommandListDestroy"] == 1


def test_no_two_threads_share_a_list(device, monkeypatch):
    """A list that is at work is nobody else's; as many are made as are needed at once."""
    barrier, used = threading.Barrier(4), []

    def work():
        with device._lists.borrowed() as handle:
            used.append(handle)
            barrier.wait()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(used)) == 4


def test_a_list_that_failed_is_used_again(device, emu):
    ptr = device.alloc(SIZE)
    device.zero(ptr, SIZE)
    emu.fail(FILL, error=Result.ZE_RESULT_ERROR_UNKNOWN)
    emu.reset_calls()
    with pytest.raises(DriverError, match=FILL):
        device.zero(ptr, SIZE)
    device.zero(ptr, SIZE)
    assert emu.calls["zeCommandListCreateImmediate"] == 0
    device.free(ptr, SIZE)


def test_work_on_the_callers_list(provider, stream, emu):
    first, second = provider.alloc(SIZE), provider.alloc(SIZE)
    emu.reset_calls()
    provider.copy(first, b"stream", 6, stream)
    assert emu.calls["zeEventHostSynchronize"] == 1, "a buffer is waited for"
    provider.copy(second, first, SIZE, stream)
    provider.zero(first, 2, stream)
    assert emu.calls["zeEventHostSynchronize"] == 1, "the rest is not"
    assert emu.calls["zeCommandListCreateImmediate"] == 0
    provider.synchronize()
    assert emu.calls["zeEventHostSynchronize"] == 3
    assert read(provider, second, 6) == b"stream"
    assert read(provider, first, 6) == b"\0\0ream"
    seen = bytearray(6)
    provider.copy(seen, second, 6, stream)
    assert seen == b"stream"
    provider.synchronize()
    provider.free(first, SIZE)
    provider.free(second, SIZE)


def test_a_stream_that_is_destroyed_is_not_touched_again(provider, emu):
    ptr, handle = provider.alloc(SIZE), new_list(provider)
    provider.zero(ptr, SIZE, handle)
    provider.copy(ptr, b"x", 1, handle)
    provider._driver.call("zeCommandListDestroy", handle)
    provider.synchronize()
    provider.free(ptr, SIZE)


def test_events_are_used_again_and_bounded(provider, stream, emu):
    ptr = provider.alloc(SIZE)
    emu.reset_calls()
    for _ in range(300):
        provider.zero(ptr, 16, stream)
    assert emu.calls["zeEventCreate"] == emu.calls["zeEventPoolCreate"] <= 64
    assert emu.calls["zeEventHostSynchronize"] == 300 - 64
    provider.synchronize()
    for _ in range(64):
        provider.zero(ptr, 16, stream)
    assert emu.calls["zeEventCreate"] <= 64
    provider.free(ptr, SIZE)
    provider._work.close()
    assert emu.calls["zeEventDestroy"] == emu.calls["zeEventCreate"]
    assert emu.calls["zeEventPoolDestroy"] == emu.calls["zeEventPoolCreate"]


def test_work_that_could_not_be_queued_leaves_no_event_pending(provider, stream, emu):
    ptr = provider.alloc(SIZE)
    emu.fail(FILL, error=Result.ZE_RESULT_ERROR_UNKNOWN)
    with pytest.raises(DriverError, match=FILL):
        provider.zero(ptr, 16, stream)
    emu.reset_calls()
    provider.synchronize()
    assert emu.calls["zeEventHostSynchronize"] == 0
    provider.free(ptr, SIZE)


def test_watched_streams_are_waited_for(provider, stream, emu):
    provider.watch_stream(stream)
    provider.watch_stream(stream)
    emu.reset_calls()
    provider.synchronize()
    assert emu.calls["zeCommandListAppendBarrier"] == 1
    assert emu.calls["zeEventHostSynchronize"] == 1
    provider.unwatch_stream(stream)
    provider.synchronize()
    assert emu.calls["zeCommandListAppendBarrier"] == 1
    with pytest.raises(InvalidArgument, match="is not watched"):
        provider.unwatch_stream(stream)
    with pytest.raises(InvalidArgument, match="no ze_command_list_handle_t"):
        provider.watch_stream(0)


def test_a_pool_waits_before_memory_changes_streams(device, emu):
    """What one watched list may still use is waited for before another list gets it."""
    lists = [new_list(device), new_list(device)]
    for each in lists:
        device.watch_stream(each)
    pool = Pool(device, limit_bytes=1 << 20)
    pool.allocate(1 << 20, stream=lists[0]).free()
    emu.reset_calls()
    second = pool.allocate(1 << 20, stream=lists[1], zero=True)
    assert emu.calls["zeCommandListAppendBarrier"] >= 1
    assert emu.calls["zeMemAllocDevice"] <= 1
    second.free()
    pool.close()
    for each in lists:
        device.unwatch_stream(each)
        device._driver.call("zeCommandListDestroy", each)


def groups(*flags):
    """What a device says that has such groups of queues."""

    def call(name, handle, count, found):
        assert name == "zeDeviceGetCommandQueueGroupProperties"
        count._obj.value = len(flags)
        for index, flag in enumerate(flags if found is not None else ()):
            assert found[index].stype == ze_command_queue_group_properties_t.STYPE
            found[index].flags, found[index].numQueues = flag, 1

    return type("Fake", (), {"call": staticmethod(call)})


def test_which_group_of_queues_is_taken():
    device = devices.Device(0, 1, 10, "one", "00", 1)
    compute = Flag.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE
    copy = Flag.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY
    assert devices.queue_group(groups(copy, compute | copy), device) == 1
    assert devices.queue_group(groups(0, copy), device) == 1
    with pytest.raises(DriverUnavailable, match="no queue that can fill or copy"):
        devices.queue_group(groups(0, 0), device)
