"""The provider fails while idle memory goes down or comes back: what did not happen did not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.laddered import LadderedProvider
from tests.fakes.provider import FakeFailure
from tests.manager.ladder import Scarce, Shape, agree, pools_of, shapes
from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import Capability, DriverError, MemoryManager, OutOfMemoryError
from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.rungs import RUNGS

PAGE = 64 * KIB
ALL = Capability.SPLIT | LADDER | Capability.STREAMS
WAYS = {
    "split": ALL,
    "chunks": ALL | Capability.RESERVE,
    "whole": ALL & ~Capability.SPLIT,
}
SHAPES = {name: shape for name, shape in shapes(PAGE).items() if name != "single arena"}
SIZES = (20 * KIB, 40 * KIB + 8, 700, 60 * KIB)


class Script:
    """Takes every rung with memory live and without, and has what sleeps come back."""

    def __init__(self, shape: Shape, way: str) -> None:
        self.provider = LadderedProvider(WAYS[way])
        self.manager = shape.manager(self.provider, thrifty=False)
        self.live: list[object] = []
        self.failures = 0

    def step(self, call: Callable[..., object], *arguments: object, **options: object) -> object:
        """A call that may fail; manager and provider agree even so."""
        live = self.manager.memory_usage().number_allocs
        try:
            return call(*arguments, **options)
        except FakeFailure:
            self.failures += 1
            assert self.manager.memory_usage().number_allocs == live
            agree(self.manager, self.provider)
            return None

    def take(self) -> None:
        for stream, size in enumerate(SIZES, 1):
            self.live.append(self.step(self.manager.reserve, size, stream=stream % 3))

    def run(self) -> None:
        for rung in RUNGS:
            self.take()
            del self.live[::2]  # some may be None: what failed
            self.step(self.manager.trim, rung=rung)
            self.step(self.manager.trim, 32 * KIB, rung="decommit")
            self.take()
            self.live.clear()
            agree(self.manager, self.provider)
        self.step(self.manager.trim, rung="dalloc")
        self.step(self.manager.cleanup, True)

    def end(self) -> None:
        """Without further failures everything goes back."""
        self.provider.recover()
        self.live.clear()
        self.manager.close()
        assert not self.provider.live
        assert all(not pool.map.extents for pool in pools_of(self.manager))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shape", SHAPES)
def test_every_call_of_the_script_may_fail(shape: str, way: str) -> None:
    # given
    whole = Script(SHAPES[shape], way)
    whole.run()
    whole.end()
    calls = [str(call[0]) for call in whole.provider.calls]
    assert {"dalloc", "purge_lazy", "decommit", "purge_force", "free", "commit"} <= set(calls)

    failures = 0
    for nth in range(1, len(calls) + 1):
        # when
        script = Script(SHAPES[shape], way)
        script.provider.fail(nth)
        script.run()

        # then
        failures += script.failures
        script.end()
    assert failures >= len(calls) // 2, "the others belong to the end, or were survived"


# Memory that does not come back.


def manager_of(provider: LadderedProvider, *entries: object, **options: object) -> MemoryManager:
    return MemoryManager(
        provider, list(entries), {"max_page_size": MIB, "alignment": 512}, **options
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("rung", ["dalloc", "decommit"])
def test_a_page_that_cannot_come_back_stays_down(shape: str, rung: str) -> None:
    provider = LadderedProvider(ALL)
    manager = SHAPES[shape].manager(provider)
    manager.reserve(40 * KIB).release()
    manager.trim(rung=rung)
    before = manager.memory_usage()
    provider.fail(1)

    with pytest.raises(FakeFailure):
        manager.reserve(40 * KIB)

    assert manager.memory_usage() == before
    agree(manager, provider)
    allocs = provider.counts["alloc"]
    manager.reserve(40 * KIB).release()
    assert provider.counts["alloc"] == allocs, "it comes back the next time"
    manager.close()
    assert not provider.live


@pytest.mark.parametrize("shape", SHAPES)
def test_without_memory_for_it_there_is_an_error_and_nothing_else(shape: str) -> None:
    provider = Scarce(MIB, ALL)
    manager = SHAPES[shape].manager(provider)
    first, second = manager.reserve(60 * KIB), manager.reserve(60 * KIB)
    second.release()
    manager.trim(rung="decommit")
    provider.memory = provider.held
    before, pages = manager.memory_usage(), [dict(pool.map.extents) for pool in pools_of(manager)]

    with pytest.raises(OutOfMemoryError, match=r"has no 60\.00 KiB") as caught:
        manager.reserve(60 * KIB)

    assert caught.value.reserved == before.bytes_reserved
    after = manager.memory_usage()
    used, held = after.bytes_in_use, after.bytes_reserved
    assert (used, held) == (before.bytes_in_use, before.bytes_reserved)
    # But for what the error came after: addresses of idle pages have gone back.
    for pool, known in zip(pools_of(manager), pages, strict=True):
        assert set(pool.map.extents) <= set(known)
    agree(manager, provider)
    first.release()
    provider.memory = MIB
    manager.reserve(60 * KIB).release()
    manager.close()
    assert not provider.live


def test_idle_memory_goes_back_before_a_page_is_given_up() -> None:
    """Reclaimed and tried again: the memory of one pool's pages wakes those of another."""
    provider = Scarce(64 * KIB, ALL)
    manager = manager_of(provider, sliced(32 * KIB), exclusive(64 * KIB), thrifty=False)
    manager.reserve(64 * KIB).release()
    manager.trim(rung="decommit")
    manager.reserve(32 * KIB).release()
    live = manager.reserve(700)
    assert provider.held == 32 * KIB
    provider.memory = 96 * KIB
    allocs = provider.counts["alloc"]
    handle = manager.reserve(64 * KIB)
    assert provider.counts["alloc"] == allocs
    handle.release()
    live.release()
    manager.trim(rung="decommit")
    manager.reserve(32 * KIB).release()
    provider.memory = 64 * KIB
    handle = manager.reserve(64 * KIB)
    assert provider.held == 64 * KIB, "the idle slice's memory has gone, all of it"
    agree(manager, provider)
    handle.release()
    manager.close()


def test_addresses_that_sleep_go_back_where_there_are_no_others() -> None:
    """They are no memory, but a page may need them."""
    provider = LadderedProvider(ALL, capacity=100 * KIB)
    manager = manager_of(provider, exclusive(32 * KIB), exclusive(64 * KIB))
    manager.reserve(64 * KIB).release()
    manager.trim(rung="decommit")
    held = [manager.reserve(32 * KIB) for _ in range(3)]
    assert manager.memory_usage().bytes_unbacked == 0
    agree(manager, provider)
    held.clear()
    manager.close()
    assert not provider.live


def test_a_new_page_is_taken_where_a_larger_one_cannot_wake() -> None:
    provider = Scarce(MIB, ALL)
    manager = SHAPES["direct"].manager(provider)
    manager.reserve(48 * KIB).release()
    manager.trim(rung="decommit")
    provider.memory = 40 * KIB
    with manager.reserve(40 * KIB):
        assert manager.memory_usage().bytes_reserved == 40 * KIB
        assert manager.memory_usage().bytes_unbacked == 48 * KIB
        agree(manager, provider)
    manager.close()


# Several parts at once: all of them wake, or none.


def scattered(first: int = UNBACKED) -> tuple[Scarce, MemoryManager, list[object]]:
    """A page whose first 48 KiB are free: 16 KiB in a state, 16 KiB ready, 16 KiB without memory.

    It is the only one, and the rest of it is used.
    """
    provider = Scarce(MIB, ALL)
    manager = manager_of(provider, sliced(64 * KIB))
    held: list[object] = [manager.reserve(16 * KIB) for _ in range(4)]
    for place, rung in ((2, "decommit"), (0, "dalloc" if first == HIDDEN else "decommit")):
        held[place] = None
        manager.trim(rung=rung)
    held[1] = None
    assert states(manager) == [(16, first), (16, SAFE), (16, UNBACKED)]
    return provider, manager, held


def states(manager: MemoryManager) -> list[tuple[int, int]]:
    """(KiB, state) of each free block, by address."""
    return [
        (span // KIB, tag)
        for pool in pools_of(manager)
        for _, span, used, tag in pool.map.blocks()
        if not used
    ]


@pytest.mark.parametrize("first", [HIDDEN, UNBACKED])
def test_parts_wake_together_or_not_at_all(first: int) -> None:
    provider, manager, held = scattered(first)
    usage = manager.memory_usage()
    provider.memory = usage.bytes_reserved + (16 * KIB if first == UNBACKED else 0)

    with pytest.raises(OutOfMemoryError):
        manager.reserve(48 * KIB)

    assert ("refused", 16 * KIB) in provider.calls
    assert states(manager) == [(16, first), (16, SAFE), (16, UNBACKED)]
    assert manager.memory_usage() == usage
    agree(manager, provider)
    provider.memory = MIB
    with manager.reserve(48 * KIB) as handle:
        assert manager.storage(handle).offset == 0
        agree(manager, provider)
    held.clear()
    manager.close()
    assert not provider.live


def test_what_cannot_be_put_to_sleep_again_is_ready() -> None:
    """The first error is the one that is told; nothing is in two minds about the memory."""
    provider, manager, held = scattered()
    usual, decommit = provider.commit, provider.decommit
    done: list[int] = []

    def commit(ptr: int, size: int, **options: object) -> None:
        if done:
            raise DriverError("commit", 1, "FIRST", "as told")
        usual(ptr, size, **options)
        done.append(ptr)

    def refuse(ptr: int, size: int) -> None:
        raise DriverError("decommit", 2, "SECOND", "as told")

    provider.commit, provider.decommit = commit, refuse
    with pytest.raises(DriverError, match="FIRST"):
        manager.reserve(48 * KIB)
    provider.commit, provider.decommit = usual, decommit

    assert states(manager) == [(32, SAFE), (16, UNBACKED)]
    assert [manager.memory_usage().bytes_unbacked] == [16 * KIB]
    manager.check("full")
    manager.reserve(48 * KIB).release()
    agree(manager, provider)
    held.clear()
    manager.close()
    assert not provider.live


def test_a_page_that_goes_in_pieces_may_stay_in_part() -> None:
    """What the provider did not take ages, and serves, as pages of its own."""
    provider = LadderedProvider(ALL)
    manager = manager_of(provider, sliced(64 * KIB, dealloc_period=5), sliced(MIB))
    held: list[object] = [manager.reserve(16 * KIB) for _ in range(4)]
    held[0] = held[2] = None
    manager.trim(rung="decommit")
    held.clear()
    assert len(provider.live) == 4
    freed, provider.counts["free"] = provider.free, 0

    def failing(ptr: int, size: int) -> None:
        if provider.counts["free"]:
            raise FakeFailure("as told")
        freed(ptr, size)

    provider.free = failing
    with pytest.raises(FakeFailure):
        manager.cleanup(explicit=True)
    provider.free = freed
    assert manager.pool_usage()[1].pages == 3
    agree(manager, provider)
    manager.reserve(16 * KIB).release()
    agree(manager, provider)
    for _ in range(50):
        manager.reserve(MIB).release()
    agree(manager, provider)
    assert manager.pool_usage()[1].pages == 0, "all of it went with time"
    manager.close()
    assert not provider.live
