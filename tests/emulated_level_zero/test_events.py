"""Events: what waits for what."""

import ctypes
import threading

import pytest


@pytest.fixture
def pool(ze, z):
    wanted = z.PoolDesc(flags=1 | 4, count=4)
    made = ze.get("zeEventPoolCreate", ze.context, wanted, 0, None)
    yield made
    ze("zeEventPoolDestroy", made)


@pytest.fixture
def events(ze, z, pool):
    made = [ze.get("zeEventCreate", pool, z.EventDesc(index=i)) for i in range(3)]
    yield made
    for event in made:
        ze("zeEventDestroy", event)


@pytest.fixture
def ptr(ze):
    made = ze.alloc(64)
    yield made
    ze.free(made)


def _fill(ze, z, list_, ptr, value, signal=None, *wait):
    array = (z.Handle * len(wait))(*wait) if wait else None
    name = "zeCommandListAppendMemoryFill"
    ze(name, list_, ptr, bytes([value]), 1, 4, signal, len(wait), array)


def test_the_host_signals_resets_and_asks(ze, z, events):
    event, *_ = events
    assert ze.error("zeEventQueryStatus", event) == z.NOT_READY
    assert ze.error("zeEventHostSynchronize", event, 0) == z.NOT_READY
    assert ze.error("zeEventHostSynchronize", event, 1000) == z.NOT_READY
    ze("zeEventHostSignal", event)
    ze("zeEventQueryStatus", event)
    ze("zeEventHostSynchronize", event, z.FOREVER)
    ze("zeEventHostReset", event)
    assert ze.error("zeEventQueryStatus", event) == z.NOT_READY


def test_a_command_signals_when_it_is_done(ze, z, events, ptr):
    list_ = ze.immediate(mode=2)
    _fill(ze, z, list_, ptr, 7, events[0])
    ze("zeEventHostSynchronize", events[0], z.FOREVER)
    assert ze.read(ptr, 4) == b"\x07" * 4
    ze("zeCommandListAppendEventReset", list_, events[0])
    assert ze.error("zeEventQueryStatus", events[0]) == z.NOT_READY
    ze("zeCommandListAppendSignalEvent", list_, events[0])
    ze("zeEventQueryStatus", events[0])
    ze("zeCommandListDestroy", list_)


def test_what_waits_is_held_back_and_so_is_what_follows(ze, z, events, ptr):
    list_ = ze.immediate(mode=2)
    _fill(ze, z, list_, ptr, 1)
    _fill(ze, z, list_, ptr, 2, events[2], events[0], events[1])
    _fill(ze, z, list_, ptr + 8, 3)
    assert ze.error("zeCommandListHostSynchronize", list_, 0) == z.NOT_READY
    assert ze.error("zeCommandListDestroy", list_) == z.IN_USE
    ze("zeEventHostSignal", events[0])
    assert ze.read(ptr, 12) == b"\x01" * 4 + bytes(8)
    ze("zeEventHostSignal", events[1])
    ze("zeEventQueryStatus", events[2])
    assert ze.read(ptr, 12) == b"\x02" * 4 + bytes(4) + b"\x03" * 4
    ze("zeCommandListHostSynchronize", list_, 0)
    ze("zeCommandListDestroy", list_)


def test_lists_wait_for_each_other_in_a_chain(ze, z, events, ptr):
    lists = [ze.immediate(mode=2) for _ in range(3)]
    _fill(ze, z, lists[2], ptr, 3, None, events[1])
    _fill(ze, z, lists[1], ptr, 2, events[1], events[0])
    assert ze.read(ptr, 4) == bytes(4)
    array = (z.Handle * 1)(events[0])
    ze("zeCommandListAppendWaitOnEvents", lists[2], 1, array)
    _fill(ze, z, lists[0], ptr, 1, events[0])
    assert ze.read(ptr, 4) == b"\x03" * 4
    for list_ in lists:
        ze("zeCommandListHostSynchronize", list_, 0)
        ze("zeCommandListDestroy", list_)


def test_another_thread_lets_a_synchronous_list_go_on(ze, z, events, ptr):
    list_ = ze.immediate(mode=1)
    waiting = threading.Thread(target=_fill, args=(ze, z, list_, ptr, 5, events[1], events[0]))
    waiting.start()
    ze("zeEventHostSignal", events[0])
    waiting.join(30)
    ze("zeEventQueryStatus", events[1])
    assert ze.read(ptr, 4) == b"\x05" * 4
    ze("zeCommandListDestroy", list_)


def test_queues_and_fences_wait_too(ze, z, events, ptr):
    queue = ze.get("zeCommandQueueCreate", ze.context, ze.devices[0], z.QueueDesc())
    list_ = ze.get("zeCommandListCreate", ze.context, ze.devices[0], z.ListDesc())
    fence = ze.get("zeFenceCreate", queue, z.FenceDesc())
    _fill(ze, z, list_, ptr, 9, None, events[0])
    ze("zeCommandListClose", list_)
    execute = "zeCommandQueueExecuteCommandLists"
    ze(execute, queue, 1, (z.Handle * 1)(list_), fence)
    assert ze.error("zeFenceHostSynchronize", fence, 0) == z.NOT_READY
    assert ze.error("zeCommandQueueSynchronize", queue, 0) == z.NOT_READY
    ze("zeFenceDestroy", fence)
    assert ze.error("zeCommandQueueDestroy", queue) == z.IN_USE
    ze("zeEventHostSignal", events[0])
    assert ze.error("zeCommandQueueSynchronize", queue, 0) == z.DEVICE_LOST  # the fence is gone
    assert ze.read(ptr, 4) == b"\x09" * 4
    ze("zeCommandListDestroy", list_)
    ze("zeCommandQueueDestroy", queue)


def test_times_of_what_signalled(ze, z, events, ptr):
    list_ = ze.immediate(mode=2)
    times = (z.u64 * 4)()
    name = "zeEventQueryKernelTimestamp"
    assert ze.error(name, events[0], times) == z.NOT_READY
    size = 1 << 20
    source, target = ze.alloc_host(size), ze.alloc(size)
    copy = "zeCommandListAppendMemoryCopy"
    ze(copy, list_, target, source, size, events[0], 0, None)
    ze(name, events[0], times)
    begin, end = times[0], times[1]
    assert list(times) == [begin, end, begin, end]
    assert end - begin == size // 25
    ze("zeCommandListDestroy", list_)
    ze.free(source, target)


def test_places_in_a_pool(ze, z, pool, events):
    out = ctypes.byref(z.Handle())
    for taken in (0, 4):
        error = ze.error("zeEventCreate", pool, z.EventDesc(index=taken), out)
        assert error == z.INVALID_ARGUMENT
    assert ze.error("zeEventPoolDestroy", pool) == z.IN_USE
    last = ze.get("zeEventCreate", pool, z.EventDesc(index=3))
    ze("zeEventDestroy", last)
    assert ze.error("zeEventDestroy", last) == z.INVALID_ARGUMENT
    assert ze.get("zeEventGetEventPool", events[0]) == pool
    assert ze.get("zeEventPoolGetFlags", pool, kind=z.u32) == 5
    assert ze.get("zeEventPoolGetContextHandle", pool) == ze.context
    empty = z.PoolDesc()
    assert ze.error("zeEventPoolCreate", ze.context, empty, 0, None, out) == z.INVALID_SIZE


def test_waiting_for_nothing_that_exists(ze, z, events):
    list_ = ze.immediate()
    barrier = "zeCommandListAppendBarrier"
    wrong = (z.Handle * 1)(ze.context)
    assert ze.error(barrier, list_, None, 1, wrong) == z.INVALID_SYNCHRONIZATION_OBJECT
    assert ze.error(barrier, list_, ze.context, 0, None) == z.INVALID_SYNCHRONIZATION_OBJECT
    assert ze.error(barrier, list_, None, 1, None) == z.INVALID_SIZE
    ze("zeCommandListDestroy", list_)


def test_an_event_that_goes_while_it_is_waited_for_loses_the_list(ze, z, pool):
    event = ze.get("zeEventCreate", pool, z.EventDesc())
    list_ = ze.immediate(mode=2)
    ze("zeCommandListAppendWaitOnEvents", list_, 1, (z.Handle * 1)(event))
    ze("zeEventDestroy", event)
    assert ze.error("zeCommandListHostSynchronize", list_, 0) == z.DEVICE_LOST
    ze("zeCommandListDestroy", list_)
