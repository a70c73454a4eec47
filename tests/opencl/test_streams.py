"""Command queues as streams."""

from __future__ import annotations

import numpy as np
import pytest

from tests.opencl.support import Kind, pattern
from umfpy import InvalidArgument, OpenCLProvider, Pool

cl = pytest.importorskip("pyopencl", exc_type=ModuleNotFoundError)

#: Some compilers have something to say about every kernel.
pytestmark = pytest.mark.filterwarnings("ignore:Non-empty compiler output")

#: Runs long enough that whoever does not wait for it is found out.
SLOW = """
kernel void slow(global int *data, int rounds) {
    int value = get_global_id(0);
    for (int i = 0; i < rounds; i++) value = value * 1664525 + 1013904223;
    data[get_global_id(0)] = value;
}
"""


def expected(count: int, rounds: int) -> np.ndarray:
    value = np.arange(count, dtype=np.int32)
    with np.errstate(over="ignore"):
        for _ in range(rounds):
            value = value * np.int32(1664525) + np.int32(1013904223)
    return value


def test_a_queue_of_another_context_or_out_of_order_is_refused(provider: OpenCLProvider) -> None:
    device = provider.context.devices[0]
    other = cl.Context([device])
    with pytest.raises(InvalidArgument, match="another context"):
        provider.stream(cl.CommandQueue(other))
    order = cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE
    if device.queue_properties & order:
        queue = cl.CommandQueue(provider.context, properties=order)
        with pytest.raises(InvalidArgument, match="out of order"):
            provider.stream(queue)
    with pytest.raises(InvalidArgument, match=r"pyopencl\.CommandQueue"):
        provider.stream(7)


def test_a_stream_that_nobody_made_known_is_refused(provider: OpenCLProvider) -> None:
    ptr = provider.alloc(128)
    for call in (
        lambda: provider.zero(ptr, 128, 0xABC),
        lambda: provider.copy(ptr, bytes(128), 128, 0xABC),
    ):
        with pytest.raises(InvalidArgument, match=r"provider\.stream\(queue\)"):
            call()
    provider.free(ptr, 128)


def test_the_default_queue_is_a_stream(provider: OpenCLProvider) -> None:
    assert provider.stream(provider.queue) == provider.queue.int_ptr
    assert provider._queues.find(0) is provider._queues.find(None) is provider.queue


def test_work_on_a_stream_is_ordered_behind_what_is_queued_there(provider: OpenCLProvider) -> None:
    count, rounds = 4096, 20_000
    size = 4 * count
    queue = cl.CommandQueue(provider.context)
    stream = provider.stream(queue)
    kernel = cl.Program(provider.context, SLOW).build().slow
    source, target = provider.alloc(size), provider.alloc(size)
    kernel(queue, (count,), None, provider.buffer(source, size), np.int32(rounds))
    provider.copy(target, source, size, stream)
    provider.zero(source, size, stream)
    provider.synchronize()
    seen = bytearray(size)
    provider.copy(seen, target, size)
    assert np.array_equal(np.frombuffer(seen, np.int32), expected(count, rounds))
    provider.copy(seen, source, size)
    assert bytes(seen) == bytes(size)
    for ptr in (source, target):
        provider.free(ptr, size)


def test_memory_of_another_stream_is_not_used_before_that_is_done(kind: Kind) -> None:
    count, rounds = 4096, 20_000
    size = 4 * count
    provider = kind.provider()
    # One block and no more, so that the second request needs what the first has freed.
    pool = Pool(provider, limit_bytes=size)
    first, second = (cl.CommandQueue(provider.context) for _ in range(2))
    kernel = cl.Program(provider.context, SLOW).build().slow
    allocation = pool.allocate(size, stream=provider.stream(first))
    kernel(first, (count,), None, provider.buffer(allocation.ptr, size), np.int32(rounds))
    first.flush()
    ptr = allocation.ptr
    allocation.free()
    again = pool.allocate(size, stream=provider.stream(second))
    data = pattern(size)
    provider.copy(again.ptr, data, size, provider.stream(second))
    provider.synchronize()
    seen = bytearray(size)
    provider.copy(seen, again.ptr, size)
    assert (bytes(seen), again.ptr) == (data, ptr)
    again.free()
    pool.close()
    assert provider.live_count() == 0


def test_free_waits_for_the_queues(provider: OpenCLProvider) -> None:
    count, rounds = 4096, 20_000
    queue = cl.CommandQueue(provider.context)
    provider.stream(queue)
    kernel = cl.Program(provider.context, SLOW).build().slow
    ptr = provider.alloc(4 * count)
    done = kernel(queue, (count,), None, provider.buffer(ptr, 4 * count), np.int32(rounds))
    queue.flush()
    provider.free(ptr, 4 * count)
    if provider.mode != "buffer":  # the driver keeps a buffer until its commands are done
        assert done.command_execution_status == cl.command_execution_status.COMPLETE
    done.wait()
