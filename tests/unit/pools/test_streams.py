"""Memory that one stream may still be using is never given to another."""

from __future__ import annotations

import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import (
    Capability,
    CoarseProvider,
    Growth,
    InvalidArgument,
    OutOfMemoryError,
    Pool,
    ProxyPool,
)

KIB = 1 << 10
A, B = 101, 102


@pytest.fixture
def pool(streamed: FakeProvider) -> Pool:
    return Pool(streamed, growth=Growth(64 * KIB, 64 * KIB))


def fill(pool: Pool, stream: int) -> list[int]:
    """Take as much as one extent of the pool holds, in small pieces."""
    return [pool.malloc(4 * KIB, stream=stream) for _ in range(14)]


def test_the_same_stream_reuses_at_once(pool: Pool, streamed: FakeProvider) -> None:
    first = pool.malloc(4 * KIB, stream=A)
    other = pool.malloc(4 * KIB, stream=B)
    pool.free(first)

    assert pool.malloc(4 * KIB, stream=A) == first
    assert streamed.counts["synchronize"] == 0
    pool.free(first)
    pool.free(other)


def test_another_stream_gets_other_memory_until_the_pool_has_waited(pool: Pool) -> None:
    # given
    first, other = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=B)
    pool.free(first)

    # when
    before = fill(pool, B)
    pool.synchronize()
    after = fill(pool, B)

    # then
    assert first not in before
    assert first in after
    for ptr in [*before, other, *after]:
        pool.free(ptr)


def test_memory_freed_before_a_second_stream_came_belongs_to_the_first(
    pool: Pool, streamed: FakeProvider
) -> None:
    first = pool.malloc(64 * KIB, stream=A)
    pool.free(first)

    second = pool.malloc(64 * KIB, stream=B)

    assert second != first or streamed.counts["synchronize"] > 0
    pool.free(second)


def test_one_stream_alone_has_no_need_to_wait(pool: Pool, streamed: FakeProvider) -> None:
    for size in (4 * KIB, 64 * KIB, KIB, 64 * KIB):
        pool.free(pool.malloc(size, stream=A))
    assert len(pool.map.blocks()) == 1
    assert streamed.counts["synchronize"] == 0


def test_free_can_name_the_last_stream_that_used_it(pool: Pool) -> None:
    # given
    ptr, other = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=B)

    # when
    pool.free(ptr, stream=B)

    # then
    assert pool.malloc(4 * KIB, stream=B) == ptr
    rest = [pool.malloc(4 * KIB, stream=A) for _ in range(14)]
    assert ptr not in rest
    for one in [*rest, ptr, other]:
        pool.free(one)


def test_a_stream_that_is_none_changes_nothing(pool: Pool) -> None:
    ptr = pool.malloc(100, stream=A)
    with pytest.raises(InvalidArgument):
        pool.free(ptr, stream=-1)
    with pool.allocate(100, stream=A) as allocation, pytest.raises(InvalidArgument):
        allocation.free(stream="B")
    pool.free(ptr)


def test_stream_objects_of_libraries(pool: Pool) -> None:
    class CudaStream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, A

    class CupyStream:
        ptr = A

    class TorchStream:
        cuda_stream = A

    for stream in (CudaStream(), CupyStream(), TorchStream()):
        with pool.allocate(100, stream=stream) as allocation:
            assert allocation.stream == A
    with pool.allocate(100) as allocation:
        assert allocation.stream == 0


def test_what_is_freed_while_the_pool_waits_was_not_waited_for(
    pool: Pool, streamed: FakeProvider
) -> None:
    # given
    early, late = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=A)
    keep = pool.malloc(4 * KIB, stream=B)
    pool.free(early)
    streamed.on_synchronize = lambda: pool.free(late)

    # when
    pool.synchronize()
    streamed.on_synchronize = None

    # then
    got = fill(pool, B)
    assert early in got
    assert late not in got
    pool.check()
    for ptr in [*got, keep]:
        pool.free(ptr)


def test_memory_that_is_being_waited_for_is_not_given_out(
    pool: Pool, streamed: FakeProvider
) -> None:
    early, keep = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=B)
    pool.free(early)
    got = []
    streamed.on_synchronize = lambda: got.append(pool.malloc(4 * KIB, stream=A))

    pool.synchronize()

    assert got != [early]
    streamed.on_synchronize = None
    for ptr in [*got, keep]:
        pool.free(ptr)


def test_after_a_failed_wait_memory_stays_out_of_reach(pool: Pool, streamed: FakeProvider) -> None:
    # given
    early, keep = pool.malloc(4 * KIB, stream=A), pool.malloc(4 * KIB, stream=B)
    pool.free(early)
    streamed.fail()

    # when
    with pytest.raises(FakeFailure):
        pool.synchronize()

    # then
    before = fill(pool, B)
    assert early not in before
    pool.synchronize()
    after = fill(pool, B)
    assert early in after
    for ptr in [*before, *after, keep]:
        pool.free(ptr)


def test_out_of_memory_waits_for_other_streams(streamed: FakeProvider) -> None:
    streamed.capacity = 64 * KIB
    pool = Pool(streamed)
    held, _ = until_exhausted(lambda: pool.malloc(4 * KIB, stream=A))
    with pytest.raises(OutOfMemoryError):
        pool.malloc(1, stream=B)
    pool.free(held.pop())

    held.append(pool.malloc(4 * KIB, stream=B))

    for ptr in held:
        pool.free(ptr)


@pytest.mark.parametrize("end", ["trim", "close", "drain", "proxy"])
def test_memory_goes_back_after_the_device_was_waited_for(streamed: FakeProvider, end: str) -> None:
    # given
    pool = ProxyPool(streamed) if end == "proxy" else Pool(streamed)
    first, second = pool.malloc(100, stream=A), pool.malloc(100, stream=B)
    if end == "drain":
        with pytest.warns(ResourceWarning):
            pool.close()

    # when
    pool.free(first)
    pool.free(second)
    if end in ("trim", "close"):
        getattr(pool, end)()

    # then
    assert not streamed.live
    calls = [call[0] for call in streamed.calls]
    assert calls[calls.index("free") - 1] == "synchronize"


def test_an_extent_freed_while_trim_waits_is_not_given_back(
    pool: Pool, streamed: FakeProvider
) -> None:
    # given
    free, busy = pool.malloc(64 * KIB, stream=A), pool.malloc(64 * KIB, stream=A)
    pool.free(free)
    last = []

    def free_late() -> None:
        last.append(pool.free(busy) if not last else None)

    streamed.on_synchronize = free_late

    # when
    pool.trim()

    # then
    assert list(streamed.live) == [busy]
    streamed.on_synchronize = None
    pool.trim()
    assert not streamed.live


def test_a_trim_whose_wait_fails_keeps_everything(pool: Pool, streamed: FakeProvider) -> None:
    pool.free(pool.malloc(64 * KIB, stream=A))
    streamed.fail()

    with pytest.raises(FakeFailure):
        pool.trim()

    pool.check()
    assert pool.stats().reserved_bytes == streamed.live_bytes
    assert pool.trim() == 64 * KIB


def test_a_nested_pool_waits_for_what_its_parent_freed(streamed: FakeProvider) -> None:
    # given
    parent = Pool(streamed)
    child = Pool(parent)
    used = parent.malloc(2 << 20)  # on the default stream, which may be at it for long
    parent.free(used)
    waits = streamed.counts["synchronize"]

    # when
    ptr = child.malloc(100, stream=A)

    # then
    assert ptr == used
    assert streamed.counts["synchronize"] > waits
    child.free(ptr)
    child.close()


def test_a_nested_pool_whose_wait_fails_takes_nothing(streamed: FakeProvider) -> None:
    parent = Pool(streamed)
    child = Pool(parent)
    streamed.fail(2)

    with pytest.raises(FakeFailure):
        child.malloc(100)

    assert child.stats().reserved_bytes == parent.stats().used_bytes == 0


def test_coarse_memory_changes_streams_only_after_a_wait(streamed: FakeProvider) -> None:
    pool = ProxyPool(CoarseProvider(streamed))
    first = pool.malloc(100, stream=A)
    pool.free(first)

    assert pool.malloc(100, stream=B) == first
    assert streamed.counts["synchronize"] == 1
    pool.free(first)


def test_without_streams_nobody_waits(provider: FakeProvider) -> None:
    pool = Pool(provider)
    first = pool.malloc(100, stream=A)
    pool.free(first)
    assert pool.malloc(100, stream=B) == first
    pool.free(first)
    pool.trim()
    assert Capability.STREAMS not in provider.capabilities
    assert provider.counts["synchronize"] == 0


def test_thousands_of_streams_come_and_go(streamed: FakeProvider) -> None:
    pool = Pool(streamed)
    for stream in range(1, 6000):
        pool.free(pool.malloc(100, stream=stream))
        if stream % 1000 == 0:
            pool.synchronize()
    pool.check()
    pool.trim()
    assert not streamed.live
