"""Command lists, immediate and regular, and the queues that carry them out."""

import ctypes
from itertools import pairwise

import pytest

MIB = 1 << 20


@pytest.fixture
def ptr(ze):
    made = ze.alloc(1 << 16)
    yield made
    ze.free(made)


def _copy(ze, list_, to, source, size, signal=None, waits=0, events=None):
    return ze.error("zeCommandListAppendMemoryCopy", list_, to, source, size, signal, waits, events)


def _fill(ze, list_, to, pattern, size, signal=None, waits=0, events=None):
    name = "zeCommandListAppendMemoryFill"
    return ze.error(name, list_, to, pattern, len(pattern), size, signal, waits, events)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_an_immediate_list_copies_between_any_two_kinds(ze, mode):
    list_ = ze.immediate(mode)
    ptrs = [ze.alloc(100), ze.alloc(100, device=1), ze.alloc_host(100), ze.alloc_shared(100)]
    mine = ctypes.create_string_buffer(b"the bytes", 100)
    chain = [ctypes.addressof(mine), *ptrs]
    for source, to in pairwise(chain):
        assert _copy(ze, list_, to, source, 100) == 0
    ze("zeCommandListHostSynchronize", list_, 0)
    assert ze.read(ptrs[-1], 9) == b"the bytes"
    ze("zeCommandListDestroy", list_)
    ze.free(*ptrs)


@pytest.mark.parametrize("width", [1, 2, 4, 8, 32, 128])
def test_patterns(ze, ptr, width):
    pattern = bytes(range(1, width + 1))
    list_ = ze.immediate()
    assert _fill(ze, list_, ptr + 3, pattern, 1000) == 0
    assert ze.read(ptr, 1008) == bytes(3) + (pattern * 1000)[:1000] + bytes(5)
    ze("zeCommandListDestroy", list_)


def test_patterns_that_no_engine_takes(ze, z, ptr):
    compute, copier = ze.immediate(), ze.immediate(ordinal=1)
    for list_, pattern in [(compute, bytes(3)), (compute, bytes(256)), (copier, bytes(8))]:
        assert _fill(ze, list_, ptr, pattern, 256) == z.INVALID_SIZE
    assert _fill(ze, copier, ptr, bytes(4), 256) == 0
    for list_ in (compute, copier):
        ze("zeCommandListDestroy", list_)


def test_memory_that_cannot_be_used_so(ze, z, ptr):
    list_ = ze.immediate()
    mine = ctypes.create_string_buffer(100)
    assert _copy(ze, list_, ptr + (1 << 16) - 50, mine, 100) == z.INVALID_ARGUMENT
    assert _copy(ze, list_, mine, ptr + (1 << 16), 1) == z.INVALID_ARGUMENT
    assert _fill(ze, list_, ptr, b"x", (1 << 16) + 1) == z.INVALID_ARGUMENT
    assert _copy(ze, list_, None, ptr, 1) == z.INVALID_NULL_POINTER
    assert _copy(ze, list_, ptr, mine, 1 << 63) == z.INVALID_ARGUMENT
    assert _copy(ze, list_, mine, ptr, 0) == 0
    assert _copy(ze, None, mine, ptr, 1) == z.INVALID_NULL_HANDLE
    assert _copy(ze, ptr, mine, ptr, 1) == z.INVALID_ARGUMENT
    ze("zeCommandListDestroy", list_)


def _regular(ze, z, ordinal=0):
    return ze.get("zeCommandListCreate", ze.context, ze.devices[0], z.ListDesc(ordinal=ordinal))


def _queue(ze, z, **desc):
    wanted = z.QueueDesc(**desc)
    return ze.get("zeCommandQueueCreate", ze.context, ze.devices[0], wanted)


def _execute(ze, z, queue, *lists, fence=None):
    array = (z.Handle * len(lists))(*lists)
    name = "zeCommandQueueExecuteCommandLists"
    return ze.error(name, queue, len(lists), array, fence)


def test_a_regular_list_is_closed_and_carried_out_as_often_as_wanted(ze, z, ptr):
    list_, queue = _regular(ze, z), _queue(ze, z)
    source = ctypes.create_string_buffer(b"one", 4)
    assert _copy(ze, list_, ptr, source, 3) == 0
    assert _execute(ze, z, queue, list_) == z.INVALID_ARGUMENT  # not closed
    ze("zeCommandListClose", list_)
    assert ze.read(ptr, 3) == bytes(3)  # not carried out
    assert _copy(ze, list_, ptr, source, 3) == z.INVALID_ARGUMENT  # closed
    for text in (b"one", b"two"):
        source.value = text
        assert _execute(ze, z, queue, list_) == 0
        ze("zeCommandQueueSynchronize", queue, z.FOREVER)
        assert ze.read(ptr, 3) == text
    ze("zeCommandListReset", list_)
    assert _fill(ze, list_, ptr, b"x", 3) == 0
    ze("zeCommandListClose", list_)
    assert _execute(ze, z, queue, list_, list_) == 0
    assert ze.read(ptr, 3) == b"xxx"
    ze("zeCommandListDestroy", list_)
    ze("zeCommandQueueDestroy", queue)


def test_lists_fit_their_queues(ze, z):
    copier, immediate, queue = _regular(ze, z, ordinal=1), ze.immediate(), _queue(ze, z)
    ze("zeCommandListClose", copier)
    assert _execute(ze, z, queue, copier) == z.INVALID_COMMAND_LIST_TYPE
    assert _execute(ze, z, queue, immediate) == z.INVALID_COMMAND_LIST_TYPE
    assert ze.error("zeCommandListClose", immediate) == z.INVALID_ARGUMENT
    assert ze.error("zeCommandListReset", immediate) == z.INVALID_ARGUMENT
    out = ctypes.byref(z.Handle())
    for wrong in (z.QueueDesc(ordinal=2), z.QueueDesc(index=4), z.QueueDesc(ordinal=1, index=1)):
        error = ze.error("zeCommandQueueCreate", ze.context, ze.devices[0], wrong, out)
        assert error == z.INVALID_ARGUMENT
    mode = z.QueueDesc(mode=3)
    error = ze.error("zeCommandListCreateImmediate", ze.context, ze.devices[0], mode, out)
    assert error == z.INVALID_ENUMERATION
    ze("zeCommandQueueDestroy", queue)
    for list_ in (copier, immediate):
        ze("zeCommandListDestroy", list_)


def test_a_fence_says_that_a_queue_has_come_so_far(ze, z, ptr):
    list_, queue, other = _regular(ze, z), _queue(ze, z), _queue(ze, z)
    ze("zeCommandListClose", list_)
    fence = ze.get("zeFenceCreate", queue, z.FenceDesc())
    assert ze.error("zeFenceQueryStatus", fence) == z.NOT_READY
    assert ze.error("zeFenceHostSynchronize", fence, 0) == z.NOT_READY
    assert _execute(ze, z, other, list_, fence=fence) == z.INVALID_ARGUMENT
    assert _execute(ze, z, queue, list_, fence=fence) == 0
    ze("zeFenceQueryStatus", fence)
    ze("zeFenceHostSynchronize", fence, z.FOREVER)
    ze("zeFenceReset", fence)
    assert ze.error("zeFenceQueryStatus", fence) == z.NOT_READY
    assert ze.error("zeCommandQueueDestroy", queue) == z.IN_USE
    ze("zeFenceDestroy", fence)
    signalled = ze.get("zeFenceCreate", queue, z.FenceDesc(flags=1))
    ze("zeFenceQueryStatus", signalled)
    ze("zeFenceDestroy", signalled)
    for made in (queue, other):
        ze("zeCommandQueueDestroy", made)
    ze("zeCommandListDestroy", list_)


def test_memory_freed_before_its_turn_loses_the_device(ze, z):
    doomed = ze.alloc(100)
    list_, queue = _regular(ze, z), _queue(ze, z)
    assert _fill(ze, list_, doomed, b"x", 100) == 0
    ze("zeCommandListClose", list_)
    ze.free(doomed)
    assert _execute(ze, z, queue, list_) == z.DEVICE_LOST
    assert ze.error("zeCommandQueueSynchronize", queue, 0) == z.DEVICE_LOST
    ze("zeCommandQueueDestroy", queue)
    ze("zeCommandListDestroy", list_)


def test_what_a_list_says_of_itself(ze, z):
    wanted = z.QueueDesc(index=2)
    list_ = ze.get("zeCommandListCreateImmediate", ze.context, ze.devices[1], wanted)
    assert ze.get("zeCommandListGetDeviceHandle", list_) == ze.devices[1]
    assert ze.get("zeCommandListGetContextHandle", list_) == ze.context
    assert ze.get("zeCommandListGetOrdinal", list_, kind=z.u32) == 0
    assert ze.get("zeCommandListImmediateGetIndex", list_, kind=z.u32) == 2
    assert ze.get("zeCommandListIsImmediate", list_, kind=ctypes.c_uint8) == 1
    ze("zeCommandListDestroy", list_)
    queue = _queue(ze, z, ordinal=1)
    assert ze.get("zeCommandQueueGetOrdinal", queue, kind=z.u32) == 1
    assert ze.get("zeCommandQueueGetIndex", queue, kind=z.u32) == 0
    ze("zeCommandQueueDestroy", queue)


def test_barriers_and_hints(ze, z):
    shared, list_ = ze.alloc_shared(4096), ze.immediate()
    ze("zeCommandListAppendBarrier", list_, None, 0, None)
    sizes, ranges = (z.size_t * 1)(4096), (z.Handle * 1)(shared)
    name = "zeCommandListAppendMemoryRangesBarrier"
    ze(name, list_, 1, sizes, ranges, None, 0, None)
    ze("zeCommandListAppendMemoryPrefetch", list_, shared, 4096)
    ze("zeCommandListAppendMemAdvise", list_, ze.devices[0], shared, 4096, 0)
    error = ze.error("zeCommandListAppendMemoryPrefetch", list_, shared, 4097)
    assert error == z.INVALID_ARGUMENT
    mine = ctypes.create_string_buffer(4)
    arguments = shared, ze.context, mine, 4, None, 0, None
    ze("zeCommandListAppendMemoryCopyFromContext", list_, *arguments)
    ze("zeCommandListDestroy", list_)
    ze.free(shared)


def test_time_goes_by_for_whoever_waits(ze, z, emu):
    """24 MiB at 25 GB/s over the bus is about a millisecond."""
    size = 24 * MIB
    ptr, host, list_ = ze.alloc(size), ze.alloc_host(size), ze.immediate(mode=2)
    before = emu.clock_us
    assert _copy(ze, list_, ptr, host, size) == 0
    assert emu.clock_us - before < 100
    ze("zeCommandListHostSynchronize", list_, 0)
    assert 900 < emu.clock_us - before < 1200
    ze("zeCommandListDestroy", list_)
    ze.free(ptr, host)
