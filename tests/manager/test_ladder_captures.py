"""Captures: nothing goes down while one is open, and what sleeps may come back."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.laddered import LadderedProvider
from tests.fakes.provider import FakeFailure
from tests.manager.ladder import agree
from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import Capability, MemoryManager, OutOfMemoryError, find
from umfpy.manager import CaptureWouldBreak
from umfpy.manager.aging import AgingPool
from umfpy.manager.persistent import PersistentPool
from umfpy.pools import captures
from umfpy.pools.rungs import RUNGS

PAGE = 32 * KIB
PROPERTIES = {"max_page_size": MIB, "alignment": 512}


def managed(*entries: object, **options: object) -> tuple[LadderedProvider, MemoryManager]:
    provider = LadderedProvider(Capability.SPLIT | LADDER | Capability.STREAMS)
    entries = entries or (sliced(PAGE), exclusive(2 * PAGE))
    return provider, MemoryManager(provider, list(entries), PROPERTIES, **options)


def end(provider: LadderedProvider, *managers: MemoryManager) -> None:
    for manager in managers:
        manager.check("full")
        manager.close()
    assert not provider.live


@pytest.mark.parametrize("rung", RUNGS)
@pytest.mark.parametrize("whose", ["own", "other"])
def test_nothing_goes_down_during_a_capture(rung: str, whose: str) -> None:
    provider, manager = managed()
    _, beside = provider, MemoryManager(provider, [exclusive(PAGE)], PROPERTIES)
    held = [manager.reserve(PAGE), manager.reserve(2 * PAGE)]
    held.clear()
    calls = len(provider.calls)
    with (manager if whose == "own" else beside).capturing_memory() as pins:
        went = manager.trim(rung=rung)
        assert (went, went.rung) == (0, None)
        assert len(provider.calls) == calls
    assert not pins
    assert manager.trim(rung=rung) == 3 * PAGE
    end(provider, manager, beside)


@pytest.mark.parametrize("rung", ["dalloc", "decommit"])
@pytest.mark.parametrize("mode", ["relaxed", "thread-local", "global"])
def test_pages_wake_where_the_driver_may_be_asked(rung: str, mode: str) -> None:
    provider, manager = managed()
    with_an_idle_page(manager)
    manager.trim(rung=rung)
    before = manager.memory_usage()
    calls = len(provider.calls)

    manager.capture_begin(mode)
    if mode == "relaxed":
        handle = manager.reserve(PAGE)
        place = manager.storage(handle).ptr
        handle.release()
        assert [call[0] for call in provider.calls[calls:]] == ["commit"], "nobody waits"
    else:
        with pytest.raises(CaptureWouldBreak, match="nothing free for 32768 bytes"):
            manager.reserve(PAGE)
        assert len(provider.calls) == calls
        assert manager.memory_usage() == before
    pins = manager.capture_end()

    assert len(pins) == (mode == "relaxed")
    if pins:
        assert manager.storage(pins[0]).ptr == place
        for again in RUNGS:
            assert manager.trim(rung=again) == 0, "the graph's memory stays as it is"
        pins.clear()
    agree(manager, provider)
    purged = PAGE if mode == "relaxed" or rung == "dalloc" else 0
    assert manager.trim(rung="purge_force") == purged
    end(provider, manager)


@pytest.mark.parametrize("error", [FakeFailure("as told"), OutOfMemoryError("as told")])
def test_what_woke_in_a_capture_stays_ready_where_the_rest_did_not(error: Exception) -> None:
    """To take its memory away again the device would have to be waited for."""
    provider, manager = managed(sliced(2 * PAGE), limit_bytes=2 * PAGE)
    beside = MemoryManager(provider, [exclusive(PAGE)], PROPERTIES)
    held: list[object] = [manager.reserve(PAGE // 2) for _ in range(4)]
    held[0] = held[2] = None
    manager.trim(rung="decommit")
    held[1] = None
    commit, woken = provider.commit, []

    def failing(ptr: int, size: int, **options: object) -> None:
        if woken:
            raise error
        commit(ptr, size, **options)
        woken.append(ptr)

    provider.commit = failing
    with beside.capturing_memory():
        calls = len(provider.calls)
        with pytest.raises(type(error)):
            manager.reserve(PAGE * 3 // 2)
        assert {call[0] for call in provider.calls[calls:]} <= {"split", "merge", "commit"}
    provider.commit = commit

    assert manager.memory_usage().bytes_unbacked == PAGE // 2
    agree(manager, provider)
    manager.reserve(PAGE * 3 // 2).release()
    held.clear()
    end(provider, manager, beside)


def test_a_capture_waits_for_what_is_on_its_way_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that what it uses was either gone before, or stays."""
    provider, manager = managed()
    pool = with_an_idle_page(manager)
    at_work, waiting, opened, go_on = (threading.Event() for _ in range(4))
    decommit, is_disturbed = provider.decommit, captures._is_disturbed

    def slow(ptr: int, size: int) -> None:
        at_work.set()
        assert go_on.wait(60)
        decommit(ptr, size)

    def telling(window: captures.Window) -> bool:
        disturbed = is_disturbed(window)
        if disturbed:
            waiting.set()
        return disturbed

    def capture() -> None:
        manager.capture_begin()
        opened.set()

    provider.decommit = slow
    monkeypatch.setattr(captures, "_is_disturbed", telling)
    lowering = threading.Thread(target=lambda: pool.trim(rung="decommit"))
    lowering.start()
    assert at_work.wait(60)
    capturing = threading.Thread(target=capture)
    capturing.start()
    assert waiting.wait(60)
    assert not opened.is_set(), "the driver is at it"
    go_on.set()
    for thread in (lowering, capturing):
        thread.join(60)

    assert opened.is_set()
    provider.decommit = decommit
    manager.reserve(PAGE).release()
    (pin,) = manager.capture_end()
    agree(manager, provider)
    pin.release()
    del pin
    end(provider, manager)


WAYS: dict[str, Callable[[AgingPool], int]] = {
    **{rung: lambda pool, rung=rung: pool.trim(rung=rung) for rung in RUNGS},
    "age": lambda pool: pool.age() + pool.age(),
    "evict": lambda pool: pool.evict(MIB),
    "release": lambda pool: pool.release_idle(),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_capture_may_be_opened_just_before_the_lock_is_had(way: str) -> None:
    """Whoever saw that none was open looks again: a page of the capture stays its own."""
    provider, manager = managed()
    pool = with_an_idle_page(manager)
    enter = pool._growing.enter

    def capture() -> None:
        manager.capture_begin()
        manager.reserve(PAGE).release()

    def late(*, wait: bool | None = None) -> bool:
        pool._growing.enter = enter
        other = threading.Thread(target=capture)
        other.start()
        other.join(60)
        return enter(wait=wait)

    pool._growing.enter = late
    assert WAYS[way](pool) == 0

    (pin,) = manager.capture_end()
    assert manager.owns(manager.storage(pin).ptr)
    agree(manager, provider)
    pin.release()
    del pin
    assert WAYS[way](pool) == PAGE, "and now it goes"
    end(provider, manager)


def with_an_idle_page(manager: MemoryManager) -> PersistentPool:
    """Return the persistent pool of a manager, with one page that is idle."""
    manager.mode("persistent")
    with manager.reserve(PAGE) as handle:
        found = find(manager.storage(handle).ptr).layout_pool
    manager.mode("auto")
    assert isinstance(found, PersistentPool)
    return found
