"""Checks of the order of streams."""

from __future__ import annotations

from collections.abc import Callable

from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import expect

#: How often another stream asks before it is believed that it does not get the memory.
_TRIES = 48


@pool_check("an Allocation knows the stream it was allocated on; what is no stream is refused")
def stream_of_allocation(subject: PoolSubject) -> None:
    for stream in (0, *subject.pool_options.streams):
        allocation = subject.allocate(subject.unit, stream=stream)
        expect(allocation.stream == stream, f"stream {stream}", allocation.stream)
        allocation.free(stream=stream)
    default = subject.allocate(subject.unit)
    expect(default.stream == 0, "stream 0 by default", default.stream)
    pool, unit, ptr = subject.pool, subject.unit, subject.alloc(subject.unit)
    with subject.unchanged("a call with stream -1"):
        bad = (InvalidArgument,)
        subject.refused("malloc(stream=-1)", bad, lambda: pool.malloc(unit, stream=-1))
        subject.refused("allocate(stream=-1)", bad, lambda: pool.allocate(unit, stream=-1))
        subject.refused("free(stream=-1)", bad, lambda: pool.free(ptr, stream=-1))
        subject.refused("Allocation.free(stream=-1)", bad, lambda: default.free(stream=-1))


@pool_check(
    "memory freed on a stream is not given to another before the device was waited for",
    needs=Capability.STREAMS,
)
def stream_order(subject: PoolSubject) -> None:
    one, two = subject.pool_options.streams

    def raw() -> int:
        ptr = subject.alloc(subject.unit, stream=one)
        subject.free(ptr)
        return ptr

    def owned() -> int:
        allocation = subject.allocate(subject.unit, stream=one)
        allocation.free()
        return allocation.ptr

    _expect_order(subject, "freed on the stream of malloc", raw, two)
    _expect_order(subject, "freed on the stream of the Allocation", owned, two)


@pool_check(
    "free on a stream that is named counts as freed on that stream", needs=Capability.STREAMS
)
def free_on_stream(subject: PoolSubject) -> None:
    one, two = subject.pool_options.streams

    def raw() -> int:
        ptr = subject.alloc(subject.unit, stream=one)
        subject.pool.free(ptr, subject.disown(ptr), two)
        return ptr

    def owned() -> int:
        allocation = subject.allocate(subject.unit, stream=one)
        allocation.free(stream=two)
        return allocation.ptr

    _expect_order(subject, "freed by free(ptr, stream=...)", raw, one)
    _expect_order(subject, "freed by Allocation.free(stream=...)", owned, one)


def _expect_order(subject: PoolSubject, how: str, leave: Callable[[], int], other: int) -> None:
    """Expect that what `leave` freed is not given to stream `other` without a wait."""
    for stream in subject.pool_options.streams:
        subject.alloc(subject.unit, stream=stream)
    subject.pool.synchronize()
    with subject.counting_waits() as waits:
        freed = leave()
        for _ in range(_TRIES):
            try:
                ptr = subject.alloc(subject.unit, stream=other)
            except OutOfMemoryError:
                break
            reused = ptr < freed + subject.unit and freed < ptr + subject.unit
            what = f"memory {how} not given to stream {other} without waiting for the device"
            expect(not reused or waits() > 0, what, f"{ptr:#x}")
            if waits():
                break


@pool_check("synchronize waits for the device, and all memory can be used afterwards")
def pool_synchronize(subject: PoolSubject) -> None:
    one, two = subject.pool_options.streams
    pointers = [subject.alloc(subject.unit, stream=stream) for stream in (one, two, one)]
    for ptr in pointers:
        subject.free(ptr)
    if subject.has(Capability.STREAMS):
        with subject.counting_waits() as waits:
            subject.pool.synchronize()
            expect(waits() > 0, "synchronize() waits for the device", "it did not")
    else:
        subject.pool.synchronize()
    subject.free(subject.alloc(3 * subject.unit, stream=two))
    subject.pool.check("full")
