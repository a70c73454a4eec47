"""Modes, persistent memory, and the memory of captures."""

from __future__ import annotations

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.fakes.provider import FakeProvider
from tests.manager.conftest import Make
from tests.manager.support import exclusive, layout, sliced
from umfpy import (
    Capability,
    Handle,
    InvalidArgument,
    MemoryManager,
    OutOfMemoryError,
    Provider,
    StaleHandle,
    find,
)
from umfpy.core.pool import live_pools
from umfpy.manager import CaptureWouldBreak


def persistent_count(manager) -> int:
    return manager.pool_usage()[0].usage.number_allocs


@pytest.mark.parametrize(
    ("choice", "first", "honoured", "outside"),
    [
        ("enabled", "auto", True, 0),
        ("size-match", "auto", True, 1),
        ("disabled", "auto", False, 0),
        ("enforced", "persistent", False, 1),
    ],
)
def test_what_persistent_memory_is_used_for(
    make: Make, choice: str, first: str, honoured: bool, outside: int
) -> None:
    manager = make("sub_slices", persistent=choice)
    assert manager.mode() == first
    wanted = "persistent" if honoured else first
    assert manager.mode("persistent") == wanted
    with manager.reserve(1000):
        assert persistent_count(manager) == (1 if honoured or choice == "enforced" else 0)
    manager.mode("auto")
    assert manager.mode() == ("persistent" if choice == "enforced" else "auto")
    with manager.capturing_memory() as pins:
        manager.reserve(5000).release()
    assert len(pins) == 1, "captures work whatever the choice"
    pins.clear()
    with manager.reserve(5000):
        assert persistent_count(manager) == outside
    with manager.reserve(7000):
        assert persistent_count(manager) == (choice == "enforced")


def test_a_size_is_known_as_long_as_its_page_is_there(make: Make) -> None:
    manager = make("sub_slices", persistent="size-match")
    manager.mode("persistent")
    held = manager.reserve(5000)
    manager.mode("auto")
    with manager.reserve(4999):
        assert persistent_count(manager) == 2, "the same padded size; a second page"
    held.release()
    manager.cleanup(True)
    with manager.reserve(5000):
        assert persistent_count(manager) == 0


def test_persistent_memory_is_reused_for_its_exact_size_alone(make: Make) -> None:
    manager = make("sub_slices", persistent="enforced")
    first = manager.reserve(1000)
    page = manager.storage(first)
    assert page.offset == 0
    first.release()
    for other in (900, 1025, 2048):
        with manager.reserve(other) as handle:
            assert manager.storage(handle).ptr != page.ptr
    with manager.reserve(1024 - 31) as handle:
        assert manager.storage(handle).ptr == page.ptr


def test_the_mode_during_a_capture_is_for_afterwards(make: Make) -> None:
    manager = make("sub_slices")
    manager.capture_begin()
    assert manager.mode("auto") == "persistent"
    assert manager.mode("persistent") == "persistent"
    manager.capture_end()
    assert manager.mode() == "persistent"
    with pytest.raises(InvalidArgument, match="'auto' or 'persistent'"):
        manager.mode("often")


def test_slices_are_used_again_within_the_capture(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        for _ in range(10):
            manager.reserve(1024).release()
    assert len(pins) == 1


def test_what_is_bound_in_the_capture_is_pinned(make: Make) -> None:
    manager = make("sub_slices", persistent="enforced")
    before, assigned = manager.reserve(64), Handle()
    with manager.capturing_memory() as pins:
        manager.bind(before, assigned, 3)
    (pin,) = pins
    assert pin.id == assigned.id
    assert manager.cursor(pin) == 3
    assert not assigned.can_mut(), "the graph uses it, too"
    pins.clear()
    del pin
    assert assigned.can_mut()


def test_pins_outlive_the_users_handles(make: Make) -> None:
    manager = make("sub_slices")
    manager.capture_begin()
    live = manager.reserve(2048)
    where = manager.storage(live)
    (pin,) = manager.capture_end()
    live.release()
    assert manager.storage(pin) == where
    assert pin.can_mut()


def test_memory_without_handles_is_pinned_as_well(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        allocation, ptr = manager.allocate(1024), manager.malloc(2048)
        gone = manager.malloc(4096)
        manager.free(gone)
    places = {manager.storage(pin).ptr for pin in pins}
    assert places == {allocation.ptr, ptr, gone}
    manager.free(ptr, 2048)
    del allocation
    assert persistent_count(manager) == 3
    with pytest.raises(InvalidArgument, match="cannot free"):
        manager.free(ptr)
    pins.clear()
    assert persistent_count(manager) == 0


def test_a_capture_that_fails_gives_everything_back(make: Make) -> None:
    manager = make("sub_slices")
    with pytest.raises(RuntimeError, match="as told"), manager.capturing_memory() as pins:  # noqa: PT012
        manager.reserve(1024).release()
        raise RuntimeError("as told")
    assert pins == []
    assert not manager.capturing
    assert persistent_count(manager) == 0
    assert manager.mode() == "auto"


def test_a_capture_inside_of_a_capture_is_refused(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        manager.reserve(1000).release()
        with pytest.raises(InvalidArgument, match="open already"), manager.capturing_memory():
            pytest.fail("the pins of the outer one would come too early")
        assert manager.capturing
        assert not manager.capture_begin(), "which changes nothing"
        manager.reserve(5000).release()
    assert len(pins) == 2
    assert manager.capture_begin()
    assert manager.capture_end() == []


def test_nothing_goes_back_during_a_capture(make: Make, provider: Provider) -> None:
    manager = make(layout(exclusive(4096, dealloc_period=5)))
    manager.reserve(1024).release()
    with manager.capturing_memory() as pins:
        held = manager.memory_usage().bytes_reserved
        assert (manager.cleanup(), manager.cleanup(True), manager.trim()) == (0, 0, 0)
        for _ in range(50):
            manager.reserve(2048).release()
        assert manager.memory_usage().bytes_reserved == held + 2048
        if Capability.STREAMS in provider.capabilities:
            with pytest.raises(CaptureWouldBreak, match="capture is open"):
                manager.synchronize()
    assert manager.cleanup(True) == held, "the pinned page stays"
    assert len(pins) == 1


def test_out_of_memory_in_a_capture_says_so(make: Make) -> None:
    manager = make(layout(sliced(4096)), limit_bytes=4096)
    manager.reserve(64).release()
    with (
        manager.capturing_memory(),
        pytest.raises(OutOfMemoryError, match="a capture is open"),
    ):
        manager.reserve(64)
    with manager.capturing_memory() as pins:
        manager.cleanup(True)
    assert pins == []


def test_memory_without_handles_may_be_freed_while_it_is_pinned(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        inside, after, dropped = (manager.allocate(1000 * n) for n in (1, 2, 3))
        raw = manager.malloc(5000)
        places = {inside.ptr, after.ptr, dropped.ptr, raw}
        inside.free()
        with pytest.raises(StaleHandle):
            inside.free()
    assert {manager.storage(pin).ptr for pin in pins} == places
    info = find(after.ptr + 5)
    assert (info.base, info.size, info.offset, info.pool) == (after.ptr, 2000, 5, manager)
    after.free()
    manager.free(raw, 5000)
    del dropped
    for wrong in (after.ptr, raw):
        with pytest.raises(InvalidArgument):
            manager.free(wrong)
    manager.mode("persistent")
    for size in (1000, 2000, 3000, 5000):
        with manager.reserve(size) as other:
            assert manager.storage(other).ptr not in places
    manager.mode("auto")
    assert {manager.storage(pin).ptr for pin in pins} == places
    pins.clear()
    assert persistent_count(manager) == 0


def test_memory_without_handles_outlives_its_pins(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        allocation, raw = manager.allocate(1000), manager.malloc(2000)
    pins.clear()
    assert persistent_count(manager) == 2
    assert manager.owns(allocation.ptr)
    assert manager.owns(raw + 1999)
    with pytest.raises(InvalidArgument, match="not 1"):
        manager.free(raw, 1)
    manager.free(raw, 2000, stream=0)
    allocation.free()
    assert persistent_count(manager) == 0


def test_memory_freed_on_another_stream_in_a_capture(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        raw = manager.malloc(1000, stream=7)
        manager.free(raw, 1000, stream=8)
        again = manager.malloc(1000, stream=8)
        assert again == raw, "for the stream that used it last it is free"
        manager.free(again)
    assert len(pins) == 1


def test_a_manager_does_not_close_during_its_own_capture(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        manager.reserve(5000).release()
        with pytest.raises(CaptureWouldBreak, match="end the capture first"):
            manager.close()
        assert not manager.closed
    assert len(pins) == 1
    pins.clear()
    manager.close()
    assert manager.closed


def test_a_forked_child_knows_nothing_of_captures() -> None:
    program = run_program(
        """
        import os
        from tests.fakes.provider import FakeProvider
        from umfpy import Capability, MemoryManager
        from umfpy.pools import captures

        provider = FakeProvider(capabilities=Capability.STREAMS)
        manager = MemoryManager(provider)
        with manager.capturing_memory():
            child = os.fork()
            if not child:
                os._exit(captures.is_frozen(provider))
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), captures.is_frozen(provider))
        """
    )
    assert_silent(program, "0 True")


def test_a_pin_stays_where_its_memory_is_bound_to_another_handle(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        held = manager.reserve(1000)
        place = manager.storage(held).ptr
    for _ in range(2):
        assigned = Handle()
        manager.bind(held, assigned)
        held = assigned
    held.release()
    assigned.release()
    assert manager.owns(place)
    manager.mode("persistent")
    with manager.reserve(1000) as other:
        assert manager.storage(other).ptr != place
    pins.clear()
    assert not manager.owns(place)


def test_an_address_that_nobody_freed_outlives_the_manager() -> None:
    program = run_program(
        """
        import gc
        from umfpy import HostProvider, MemoryManager, find

        manager = MemoryManager(HostProvider(), "sub_slices")
        with manager.capturing_memory() as pins:
            ptr = manager.malloc(1000)
        pins.clear()
        del manager
        gc.collect()
        print(find(ptr) is None or find(ptr).base == ptr)
        import ctypes
        ctypes.memset(ptr, 1, 1000)
        """
    )
    assert_silent(program, "True")


def test_what_had_to_wait_may_fail_and_the_pins_are_there() -> None:
    provider = FakeProvider(capabilities=Capability.STREAMS)
    manager, other = MemoryManager(provider), MemoryManager(provider, name="other")
    other.reserve(1000).release()
    manager.capture_begin()
    manager.reserve(1000).release()
    other.close()
    assert provider.live, "which waits for the end of the capture"
    provider.fail()
    with pytest.warns(ResourceWarning, match="after a capture failed: as told"):
        pins = manager.capture_end()
    assert len(pins) == 1
    provider.recover()
    pins.clear()
    manager.close()
    for pool in live_pools():
        if getattr(pool, "manager", None) is other:
            pool.close()
    assert not provider.live


def test_what_is_pinned_counts_in_the_peaks(make: Make) -> None:
    manager = make("sub_slices")
    with manager.capturing_memory() as pins:
        manager.reserve(5000).release()
        kept = [manager.reserve(size) for size in (100, 200)]
    now = manager.memory_usage()
    assert (now.number_allocs, now.bytes_in_use) == (3, 5300)
    assert (now.peak_number_allocs, now.peak_bytes_in_use) == (3, 5300)
    del kept
    pins.clear()
