"""When memory is short: caps, limits, budgets, and a provider that has no more."""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable

import pytest

from tests.fakes.provider import FakeFailure, FakeProvider
from tests.manager.conftest import Make
from tests.manager.support import KIB, MIB, PROPERTIES, exclusive, layout, sliced
from umfpy import Capability, InvalidArgument, MemoryManager, OutOfMemoryError, Pool
from umfpy.manager import Budget, BufferTooBig, PoolCapacityExceeded


def fake(**options: object) -> FakeProvider:
    return FakeProvider(granule=32, **options)


def test_idle_pages_make_room_before_memory_runs_out() -> None:
    provider = fake(capacity=8 * KIB)
    manager = MemoryManager(
        provider, [sliced(4 * KIB), exclusive(8 * KIB)], PROPERTIES, thrifty=False
    )
    manager.reserve(64).release()
    handle = manager.reserve(8 * KIB)  # needs the page that is idle
    assert manager.memory_usage().bytes_reserved == 8 * KIB
    handle.release()
    manager.close()
    assert not provider.live


def test_one_reclaim_and_one_retry_then_an_error() -> None:
    provider = fake(capacity=8 * KIB)
    manager = MemoryManager(provider, [exclusive(64 * KIB)], PROPERTIES)
    held = manager.reserve(4 * KIB)
    provider.calls.clear()
    with pytest.raises(OutOfMemoryError, match="release handles") as caught:
        manager.reserve(6 * KIB)
    assert isinstance(caught.value, MemoryError)
    assert (caught.value.requested, caught.value.reserved) == (6 * KIB, 4 * KIB)
    assert [call[0] for call in provider.calls] == ["alloc"], "nothing came back, so no retry"
    manager.check("full")
    assert manager.storage(held).size == 4 * KIB
    held.release()
    assert manager.reserve(6 * KIB).can_mut()


def test_a_page_that_can_never_come_is_named_and_not_the_request() -> None:
    provider = fake(capacity=MIB)
    manager = MemoryManager(provider, [sliced(2 * MIB)], PROPERTIES)
    words = r"each new page of it takes 2\.00 MiB \(2097152 bytes\).*lower page_size"
    with pytest.raises(OutOfMemoryError, match=words) as caught:
        manager.reserve(1000)
    assert "release handles" not in str(caught.value)
    assert caught.value.requested == 1000

    manager.configure([sliced(512 * KIB)])
    handles = [manager.reserve(1000)]
    manager.limit_bytes = 256 * KIB
    handles.clear()
    manager.cleanup(explicit=True)
    with pytest.raises(OutOfMemoryError, match=r"takes 512\.00 KiB .*lower page_size.*raise the l"):
        manager.reserve(1000)
    manager.limit_bytes = None
    manager.reserve(1000).release()
    manager.close()


def test_a_page_that_may_come_later_asks_for_handles() -> None:
    manager = MemoryManager(fake(capacity=MIB), [sliced(512 * KIB)], PROPERTIES)
    held = [manager.reserve(512 * KIB) for _ in range(2)]
    with pytest.raises(OutOfMemoryError, match="release handles"):
        manager.reserve(1000)
    held.clear()
    manager.close()


def test_an_error_has_the_numbers_of_the_whole_manager(make: Make) -> None:
    manager = make(layout(sliced(1024), exclusive(8 * KIB)), limit_bytes=4 * KIB)
    held = [manager.reserve(100), manager.reserve(2 * KIB)]
    with pytest.raises(OutOfMemoryError) as caught:
        manager.reserve(4 * KIB)
    now = manager.stats()
    assert (caught.value.used, caught.value.reserved) == (now.used_bytes, now.reserved_bytes)
    assert caught.value.limit == 4 * KIB
    del held


def test_other_pools_of_the_device_are_asked() -> None:
    provider = fake(capacity=MIB, device=7)
    pool = Pool(provider)
    pool.allocate(MIB).free()
    manager = MemoryManager(provider, [exclusive(MIB)], PROPERTIES)
    held = manager.reserve(MIB)
    assert pool.stats().reserved_bytes == 0
    held.release()
    allocation = pool.allocate(MIB)  # and the other way round
    assert manager.memory_usage().bytes_reserved == 0
    allocation.free()
    pool.close()


def test_a_limit_is_kept(make: Make) -> None:
    manager = make(layout(exclusive(MIB)), limit_bytes="8KiB")
    held = [manager.reserve(4 * KIB) for _ in range(2)]
    with pytest.raises(OutOfMemoryError, match=r"limit_bytes is 8\.00 KiB") as caught:
        manager.reserve(32)
    assert caught.value.limit == 8 * KIB
    held.pop().release()
    held.append(manager.reserve(2 * KIB))
    manager.limit_bytes = None
    held.append(manager.reserve(64 * KIB))
    assert manager.memory_usage().bytes_reserved > 8 * KIB


def test_a_budget_is_shared(make: Make) -> None:
    budget = Budget("8KiB")
    first = make(layout(exclusive(MIB)), budget=budget)
    second = make(layout(exclusive(MIB)), budget=budget)
    held = [first.reserve(4 * KIB)]
    second.reserve(4 * KIB).release()
    assert budget.held_bytes == 8 * KIB
    held.append(first.reserve(4 * KIB))
    assert second.memory_usage().bytes_reserved == 0, "its idle page went"
    with pytest.raises(OutOfMemoryError, match=r"Budget\(8\.00 KiB of 8\.00 KiB held\)"):
        second.reserve(32)
    budget.limit_bytes = 16 * KIB
    held.append(second.reserve(8 * KIB))
    assert budget.held_bytes == 16 * KIB
    held.clear()
    del first, second
    with pytest.raises(InvalidArgument):
        Budget(True)


@pytest.mark.parametrize("bound", ["device", "limit", "budget"])
def test_a_request_that_can_never_be_met_costs_nobody_else(bound: str) -> None:
    provider = fake(capacity=MIB if bound == "device" else None)
    pool = Pool(provider)
    pool.allocate(KIB).free()
    budget = Budget(MIB)
    limits = {"limit": {"limit_bytes": MIB}, "budget": {"budget": budget}}.get(bound, {})
    second = MemoryManager(provider, [exclusive(MIB)], PROPERTIES, budget=budget)
    second.reserve(KIB).release()
    manager = MemoryManager(provider, [exclusive(4 * MIB)], PROPERTIES, **limits)
    with pytest.raises(OutOfMemoryError):
        manager.reserve(2 * MIB)
    assert pool.stats().reserved_bytes > 0
    assert second.memory_usage().bytes_reserved == KIB


def test_a_manager_that_is_gone_leaves_its_budget() -> None:
    budget = Budget(MIB)
    manager = MemoryManager(fake(), [exclusive(MIB)], PROPERTIES, budget=budget)
    manager.reserve(KIB).release()
    assert budget.held_bytes == KIB
    del manager
    gc.collect()
    assert (budget.held_bytes, budget.members()) == (0, [])


def test_what_is_too_big_for_every_pool(make: Make) -> None:
    manager = make(layout(sliced(1024), exclusive(2048)))
    for size in (2049, 1 << 40, (1 << 64) - 1, 1 << 70):
        with pytest.raises(BufferTooBig, match="2048 bytes") as caught:
            manager.reserve(size)
        assert (caught.value.size, caught.value.largest) == (size, 2048)
        assert isinstance(caught.value, OutOfMemoryError), "CuPy can make room and try again"
    for wrong in (-1, 1.5, "8", None):
        with pytest.raises(InvalidArgument, match="size must be"):
            manager.reserve(wrong)
    assert manager.memory_usage().bytes_reserved == 0


def test_spilling_is_told_once(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    manager = make(layout(sliced(1024, 1024), sliced(1024, 1024), exclusive(1024)), spill=True)
    with caplog.at_level(logging.WARNING, "umfpy.manager"):
        held = [manager.reserve(1024) for _ in range(4)]
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    kinds = [pool.usage.number_allocs for pool in manager.pool_usage()]
    assert kinds == [0, 1, 1, 2]
    held.clear()


def test_the_layout_changes_while_a_request_spills(make: Make) -> None:
    manager = make(layout(sliced(1024, 1024), sliced(2048)), spill=True)
    held = [manager.reserve(1024)]

    class Changing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if "at its cap" in record.getMessage():
                held.clear()
                assert manager.configure(layout(exclusive(4096)))

    handler = Changing(logging.WARNING)
    logging.getLogger("umfpy.manager").addHandler(handler)
    try:
        handle = manager.reserve(1024)
    finally:
        logging.getLogger("umfpy.manager").removeHandler(handler)
    assert [pool.usage.number_allocs for pool in manager.pool_usage()] == [0, 1]
    handle.release()


def test_the_last_pool_at_its_cap_refuses(make: Make) -> None:
    manager = make(layout(sliced(1024, 1024)), spill=True)
    held = manager.reserve(1024)
    with pytest.raises(PoolCapacityExceeded):
        manager.reserve(1024)
    held.release()


def test_the_peak_is_not_raised_for_pages_that_lie_idle(make: Make) -> None:
    manager = make("exclusive_pages")
    manager.reserve(MIB).release()
    for size in range(KIB, 512 * KIB, 40 * KIB):
        manager.reserve(size).release()
    assert manager.memory_usage().peak_bytes_reserved == MIB


@pytest.mark.parametrize("nth", range(1, 8))
@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"])
def test_the_nth_call_of_the_provider_fails(preset: str, nth: int) -> None:
    provider = fake(capabilities=Capability.STREAMS)
    manager = MemoryManager(provider, preset, {"max_page_size": MIB, "alignment": 32})
    provider.fail(nth)
    held = []
    failures = 0
    for stream, size in enumerate((100, 5000, 700 * KIB, 100, 600 * KIB, 900 * KIB)):
        before = manager.memory_usage()
        try:
            held.append(manager.reserve(size, stream=1 + stream % 2))
        except FakeFailure:
            failures += 1
            after = manager.memory_usage()
            assert after.number_allocs == before.number_allocs
        manager.check("full")
        if len(held) == 3:
            held.pop(0).release()
    try:
        manager.cleanup(True)
    except FakeFailure:
        failures += 1
        manager.check("full")
    provider.recover()
    assert failures <= 1
    held.clear()
    manager.cleanup(True)
    assert not provider.live
    manager.close()


@pytest.mark.parametrize("alignment", [32, 48])
@pytest.mark.parametrize("ask", [MemoryManager.allocate, MemoryManager.malloc])
@pytest.mark.parametrize("entry", [sliced(MIB), exclusive(MIB)])
def test_memory_that_cannot_be_cleared_is_free_again(
    entry: object, ask: Callable[..., object], alignment: int
) -> None:
    provider = fake(capabilities=Capability.ZERO)
    properties = {"max_page_size": MIB, "alignment": alignment}
    manager = MemoryManager(provider, [entry], properties)
    manager.reserve(1000).release()  # there is a page: the next call of the provider is `zero`
    provider.fail()
    with pytest.raises(FakeFailure):
        ask(manager, 1000, zero=True)
    assert provider.counts["zero"] == 1
    assert manager.memory_usage().number_allocs == 0
    manager.close()
    assert not provider.live


def test_memory_freed_on_one_stream_waits_before_another_uses_it() -> None:
    provider = fake(capabilities=Capability.STREAMS)
    for preset in ("sub_slices", "exclusive_pages"):
        manager = MemoryManager(provider, preset, {"max_page_size": MIB, "alignment": 32})
        first = manager.reserve(1000, stream=1)
        other = manager.reserve(500, stream=2)
        place = manager.storage(first).ptr
        first.release()
        provider.calls.clear()
        with manager.reserve(1000, stream=1) as again:
            assert manager.storage(again).ptr == place, "the same stream at once"
        assert ("synchronize",) not in provider.calls
        with manager.reserve(1000, stream=2) as elsewhere:
            waited = ("synchronize",) in provider.calls
            assert waited or manager.storage(elsewhere).ptr != place
        other.release()
        manager.close()


@pytest.mark.parametrize("spill", [False, True])
def test_an_error_keeps_no_handle_alive(make: Make, spill: bool) -> None:
    manager = make(layout(sliced(1024, 1024), sliced(1024, 1024)), spill=spill)

    def fill() -> None:
        held = [manager.reserve(1024)]
        try:
            held += [manager.reserve(1024), manager.reserve(1024)]
        except PoolCapacityExceeded:
            return

    gc.disable()
    try:
        fill()
        assert manager.memory_usage().number_allocs == 0
    finally:
        gc.enable()
