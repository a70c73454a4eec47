"""Pools of every kind while a capture is open: nothing of theirs breaks it, and nothing is lost."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tests.fakes.apart import ApartProvider
from tests.fakes.provider import FakeProvider
from umfpy import (
    Capability,
    CaptureWouldBreak,
    Idle,
    OutOfMemoryError,
    Pool,
    ProxyPool,
    SlabPool,
)
from umfpy.pools import captures
from umfpy.pools.base import ProviderPool
from umfpy.pools.captures import CaptureMode, Window
from umfpy.pools.rungs import RUNGS
from umfpy.provider import Provider

KIB, MIB = 1 << 10, 1 << 20
STREAMED = Capability.STREAMS | Capability.ZERO
STRICT = [CaptureMode.THREAD_LOCAL, CaptureMode.GLOBAL]
BREAKS = {"synchronize", "free", "decommit", "dalloc", "purge_lazy", "purge_force", "remap"}

Make = Callable[[Provider], ProviderPool]

KINDS: dict[str, Make] = {
    "pool": Pool,
    "proxy": ProxyPool,
    "slabs": SlabPool,
    "large": lambda provider: SlabPool(provider, largest=KIB),
    "unkept": lambda provider: SlabPool(provider, capacity=0),
}


@contextmanager
def capture(provider: Provider, mode: CaptureMode = CaptureMode.RELAXED) -> Iterator[None]:
    """A capture on the provider's device, in which no call to it may break it."""
    window = Window("test", provider, mode)
    captures.open_window(window)
    try:
        yield
    finally:
        captures.close_window(window)


def calls_since(provider: FakeProvider, place: int) -> set[object]:
    return {call[0] for call in provider.calls[place:]}


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider(capabilities=STREAMED)


@pytest.fixture(params=KINDS)
def make(request: pytest.FixtureRequest) -> Make:
    return KINDS[request.param]


def test_nothing_goes_back_and_nobody_waits(make: Make, provider: FakeProvider) -> None:
    pool = make(provider)
    held = [pool.allocate(5000, stream=stream) for stream in (1, 2, 3)]
    addresses = [pool.malloc(5000) for _ in range(2)]
    with capture(provider):
        place = len(provider.calls)
        reserved = pool.stats().reserved_bytes
        held.clear()
        pool.free(addresses.pop())
        for rung in RUNGS:
            assert pool.trim(rung=rung) == 0
        with pytest.raises(CaptureWouldBreak, match=r"cannot wait for the device.*'test'"):
            pool.synchronize()
        pool.check()
        now = pool.stats()
        assert (now.live_allocations, now.reserved_bytes) == (1, reserved)
        assert not calls_since(provider, place)
    pool.free(addresses.pop())
    pool.trim()
    assert not provider.live
    pool.close()


def test_a_relaxed_capture_lets_pools_grow(make: Make, provider: FakeProvider) -> None:
    pool = make(provider)
    pool.allocate(5000, stream=1).free()
    with capture(provider):
        place = len(provider.calls)
        held = [pool.allocate(size, stream=2) for size in (5000, 3 * MIB, 9 * MIB)]
        assert calls_since(provider, place) == {"alloc"}
        pool.check()
    del held
    pool.close()
    assert not provider.live


@pytest.mark.parametrize("mode", STRICT)
def test_growth_is_refused_where_the_mode_forbids_it(
    make: Make, provider: FakeProvider, mode: CaptureMode
) -> None:
    pool = make(provider)
    kept = pool.allocate(5000)
    with capture(provider, mode):
        place, before = len(provider.calls), pool.stats()
        for ask in (pool.allocate, pool.malloc):
            with pytest.raises(
                CaptureWouldBreak, match=rf"nothing free for \d+ bytes.*{mode.value}.*'relaxed'"
            ):
                ask(9 * MIB)
        assert len(provider.calls) == place
        assert pool.stats() == before
        pool.check()
    with pool.allocate(9 * MIB):
        kept.free()
    pool.close()
    assert not provider.live


def test_what_is_free_serves_in_every_mode(provider: FakeProvider) -> None:
    for make in (Pool, SlabPool):
        pool = make(provider)
        pool.allocate(5000).free()
        with capture(provider, CaptureMode.GLOBAL):
            place = len(provider.calls)
            pool.allocate(5000).free()
            assert len(provider.calls) == place
        pool.close()


@pytest.mark.parametrize(("mode", "refused"), [("thread-local", False), ("global", True)])
def test_a_thread_local_capture_binds_its_own_thread(
    make: Make, provider: FakeProvider, mode: str, refused: bool
) -> None:
    pool = make(provider)
    caught: list[BaseException] = []

    def grow() -> None:
        try:
            pool.allocate(9 * MIB).free()
        except CaptureWouldBreak as error:
            caught.append(error)

    with capture(provider, CaptureMode(mode)):
        other = threading.Thread(target=grow)
        other.start()
        other.join()
        assert bool(caught) == refused
        assert not BREAKS & calls_since(provider, 0)
    pool.close()
    assert not provider.live


@dataclass
class Paused:
    """A thread that is at work in a provider, and stays there until it is let go."""

    at_work: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)

    def pause(self) -> None:
        self.at_work.set()
        assert self.go_on.wait(60)

    @contextmanager
    def doing(self, work: Callable[[], object]) -> Iterator[None]:
        thread = threading.Thread(target=work)
        thread.start()
        assert self.at_work.wait(60)
        yield
        self.go_on.set()
        thread.join(60)


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set once a capture waits for what is under way."""
    waits, is_disturbed = threading.Event(), captures._is_disturbed

    def telling(window: Window) -> bool:
        disturbed = is_disturbed(window)
        if disturbed:
            waits.set()
        return disturbed

    monkeypatch.setattr(captures, "_is_disturbed", telling)
    return waits


def test_a_capture_waits_for_who_waits_for_the_device(
    make: Make, provider: FakeProvider, told: threading.Event
) -> None:
    pool, paused, opened = make(provider), Paused(), threading.Event()
    kept = [pool.allocate(5000, stream=stream) for stream in (1, 2)]
    window = Window("test", provider, CaptureMode.RELAXED)

    def begin() -> None:
        captures.open_window(window)
        opened.set()

    provider.on_synchronize = paused.pause
    with paused.doing(pool.synchronize):
        beginning = threading.Thread(target=begin)
        beginning.start()
        assert told.wait(60)
        assert not opened.is_set()
        assert pool.frozen, "nobody else begins to wait"
    beginning.join(60)
    assert opened.is_set()
    provider.on_synchronize = None
    captures.close_window(window)
    kept.clear()
    pool.close()
    assert not provider.live


@pytest.mark.parametrize("mode", CaptureMode)
def test_a_capture_waits_for_growth_that_it_forbids(
    make: Make, provider: FakeProvider, told: threading.Event, mode: CaptureMode
) -> None:
    pool, paused = make(provider), Paused()
    alloc, held = provider.alloc, []

    def slow(size: int, alignment: int = 0) -> int:
        paused.pause()
        return alloc(size, alignment)

    provider.alloc = slow
    with paused.doing(lambda: held.append(pool.allocate(9 * MIB))):
        if mode is CaptureMode.GLOBAL:
            freeing = threading.Thread(target=lambda: told.wait(60) and paused.go_on.set())
            freeing.start()
            with capture(provider, mode):
                assert provider.live, "the memory has come"
            freeing.join(60)
        else:
            with capture(provider, mode):
                assert not held
    assert told.is_set() == (mode is CaptureMode.GLOBAL)
    provider.alloc = alloc
    held.clear()
    pool.close()
    assert not provider.live


def test_who_is_at_it_when_a_capture_begins_may_go_on(
    provider: FakeProvider, told: threading.Event
) -> None:
    """A trim that has begun waits for the device twice, and then frees."""
    pool, paused = Pool(provider), Paused()
    for size in (5000, 9 * MIB):
        for stream in (1, 2):
            pool.allocate(size, stream=stream).free()
    went, window = [], Window("test", provider, CaptureMode.GLOBAL)
    provider.on_synchronize = paused.pause
    with paused.doing(lambda: went.append(pool.trim())):
        beginning = threading.Thread(target=captures.open_window, args=(window,))
        beginning.start()
        assert told.wait(60)
    beginning.join(60)
    assert went[0] > 0
    assert not provider.live
    provider.on_synchronize = None
    captures.close_window(window)
    pool.close()


def test_memory_of_another_device_or_driver_is_free_to_go(make: Make) -> None:
    here = FakeProvider(capabilities=STREAMED)
    other_driver = FakeProvider(capabilities=STREAMED)
    other_driver.driver = "another"
    for there in (FakeProvider(capabilities=STREAMED, device=1), FakeProvider(), other_driver):
        pool = make(there)
        with capture(here):
            pool.allocate(5000).free()
            pool.synchronize()
            pool.trim()
            assert not there.live
        pool.close()


def test_closing_is_put_off(make: Make, provider: FakeProvider) -> None:
    pool, dropped = make(provider), make(provider)
    late = pool.allocate(5000)
    for one in (pool, dropped):
        one.allocate(5000, stream=1).free()
    with capture(provider):
        place = len(provider.calls)
        with pytest.warns(ResourceWarning, match="1 live"):
            pool.close()
        assert pool.closed
        late.free()
        del dropped, one
        gc.collect()
        assert not calls_since(provider, place)
        assert provider.live
    gc.collect()
    assert not provider.live


def test_what_a_capture_put_off_may_fail_and_is_not_lost(provider: FakeProvider) -> None:
    pool = ProxyPool(provider)
    window = Window("test", provider, CaptureMode.RELAXED)
    captures.open_window(window)
    pool.allocate(5000).free()
    provider.fail()
    with pytest.warns(ResourceWarning, match="after a capture failed: as told"):
        captures.close_window(window)
    assert provider.live
    assert (pool.stats().live_allocations, pool.stats().provider_frees) == (0, 0)
    assert pool.trim() == provider.counts["alloc"] * 5120
    assert pool.stats().provider_frees == 1
    assert not provider.live


def test_an_allocation_whose_freeing_is_put_off_is_freed_once(provider: FakeProvider) -> None:
    pool = ProxyPool(provider)
    one, ptr = pool.allocate(100), pool.malloc(100)
    nested = Pool(pool)
    inner = nested.malloc(100)
    with capture(provider):
        one.free()
        assert not pool.owns(one.ptr)
        pool.free(ptr, 100)
        with pytest.raises(Exception, match="cannot free"):
            pool.free(ptr)
        nested.free(inner)
    nested.close()
    pool.close()
    assert not provider.live


def test_a_pool_that_waits_for_another_cannot_grow(provider: FakeProvider) -> None:
    inner = Pool(provider)
    outer = Pool(inner)
    with capture(provider):
        place, before = len(provider.calls), inner.stats()
        with pytest.raises(CaptureWouldBreak, match="cannot wait for the device"):
            outer.allocate(100)
        assert len(provider.calls) == place
        assert inner.stats() == before
    outer.allocate(100).free()
    outer.close()
    inner.close()
    assert not provider.live


@pytest.mark.parametrize("kind", ["pool", "slabs"])
def test_memory_that_has_run_out_says_that_a_capture_is_open(kind: str) -> None:
    provider = FakeProvider(capabilities=STREAMED, capacity=16 * MIB)
    pool, other = KINDS[kind](provider), Pool(provider)
    other.allocate(9 * MIB).free()
    with capture(provider):
        place = len(provider.calls)
        with pytest.raises(OutOfMemoryError, match="a capture is open"):
            pool.allocate(9 * MIB)
        assert not BREAKS & calls_since(provider, place)
    pool.allocate(9 * MIB).free()
    pool.close()
    other.close()


def test_idle_memory_stays(provider: FakeProvider) -> None:
    pool = Pool(provider, idle=Idle(rungs="free", after_operations=1))
    pool.allocate(5000).free()
    with capture(provider):
        place = len(provider.calls)
        assert pool.sweep() == []
        held = pool.allocate(9 * MIB)
        assert calls_since(provider, place) == {"alloc"}
    held.free()
    assert pool.sweep() or pool.sweep()
    pool.close()


@pytest.mark.parametrize("mode", CaptureMode)
def test_virtual_memory_is_neither_moved_nor_dropped(mode: CaptureMode) -> None:
    provider = ApartProvider(memory=64 * MIB)
    pool = Pool(provider)
    pieces = [pool.allocate(4 * MIB) for _ in range(8)]
    del pieces[::2]
    pool.trim(keep_bytes=24 * MIB, rung="decommit")
    place = len(provider.calls)
    with capture(provider, mode):
        if mode is CaptureMode.RELAXED:
            large = pool.allocate(10 * MIB)
        else:
            with pytest.raises(CaptureWouldBreak):
                pool.allocate(10 * MIB)
            assert len(provider.calls) == place
            with pytest.raises(CaptureWouldBreak):
                pieces[-1].resize(12 * MIB)
            assert len(provider.calls) == place
            large = None
        assert not BREAKS & {call[0] for call in provider.calls[place:]}
        pool.check()
    del large, pieces
    pool.close()
