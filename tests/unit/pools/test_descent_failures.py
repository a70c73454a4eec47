"""The provider fails its nth call, for all n: what did not go down is as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.laddered import RUNGS, LadderedProvider, agree, end, states
from tests.fakes.provider import FakeFailure
from umfpy import Capability, DriverError, Growth, Pool
from umfpy.core.extents import HIDDEN, LEAVING, RETIRING, SAFE, UNBACKED

KIB = 1 << 10
GROWTH = Growth(256 * KIB, 256 * KIB)
ALL = Capability.SPLIT | RUNGS | Capability.STREAMS
WAYS = {
    "split": ALL,
    "chunks": ALL | Capability.RESERVE,
    "whole": ALL & ~Capability.SPLIT,
    "no streams": ALL & ~Capability.STREAMS,
}
NATIVE = ("dalloc", "purge_lazy", "decommit", "purge_force", "free")


class Script:
    """Takes every rung after others, with memory live and without."""

    def __init__(self, way: str, error: BaseException) -> None:
        self.provider = LadderedProvider(WAYS[way])
        self.provider.kept = 4096
        self.error = error
        self.pool = Pool(self.provider, growth=GROWTH)
        self.live: list[int] = []

    def step(self, call, *arguments: object, **options: object):
        """A call that may fail; pool and provider agree even so."""
        try:
            return call(*arguments, **options)
        except type(self.error):
            agree(self.pool, self.provider)
            return None

    def take(self, *sizes: int) -> None:
        for stream, size in enumerate(sizes, 1):
            ptr = self.step(self.pool.malloc, size, 0, stream % 3)
            if ptr is not None:
                self.live.append(ptr)

    def give(self, every: int) -> None:
        for ptr in self.live[::every]:
            self.pool.free(ptr)
            self.live.remove(ptr)

    def run(self) -> None:
        for first in NATIVE:
            for second in ("dalloc", "purge_force", "decommit"):
                self.take(30 * KIB, 70 * KIB + 8, 256 * KIB, 1000, 40 * KIB)
                self.give(2)
                self.step(self.pool.trim, rung=first)
                self.step(self.pool.trim, 96 * KIB, rung=second)
                agree(self.pool, self.provider)
            self.give(1)
            self.step(self.pool.trim, rung=first)
        self.step(self.pool.trim)

    def end(self) -> None:
        """Without further failures everything goes back."""
        self.provider.recover()
        self.give(1)
        self.pool.close()
        agree(self.pool, self.provider)
        assert not self.provider.live
        assert self.pool.stats().extents == 0


@pytest.mark.parametrize(
    ("way", "error"),
    [(way, FakeFailure("as told")) for way in WAYS] + [("split", DriverError("fake", 1, "FAKE"))],
)
def test_every_call_of_the_script_may_fail(way: str, error: BaseException) -> None:
    # given
    whole = Script(way, error)
    whole.run()
    whole.end()
    calls = len(whole.provider.calls)
    assert {*NATIVE, "commit"} <= {str(call[0]) for call in whole.provider.calls}

    for nth in range(1, calls + 1):
        # when
        script = Script(way, error)
        script.provider.fail(nth, error)
        script.run()

        # then
        script.end()


@pytest.fixture
def provider() -> LadderedProvider:
    return LadderedProvider()


@pytest.fixture
def pool(provider: LadderedProvider) -> Iterator[Pool]:
    """A pool from which everything goes back in the end."""
    made = Pool(provider, growth=GROWTH)
    yield made
    end(made, provider)


def scattered(pool: Pool) -> list[int]:
    """Free memory of 32, 64, 16 and 128 KiB, each between live allocations; returns those."""
    sizes = (32, 4, 64, 4, 16, 8)
    made = [pool.malloc(size * KIB) for size in sizes]
    for ptr in made[::2]:
        pool.free(ptr)
    return made[1::2]


def test_what_has_gone_down_stays_down_when_the_next_fails(
    pool: Pool, provider: LadderedProvider
) -> None:
    """The largest goes first; its neighbours in line are as they were."""
    scattered(pool)
    assert states(pool) == [(32, SAFE), (64, SAFE), (16, SAFE), (128, SAFE)]
    decommit, done = provider.decommit, []

    def failing(ptr: int, size: int) -> None:
        if len(done) == 2:
            raise FakeFailure("as told")
        done.append(size)
        decommit(ptr, size)

    provider.decommit = failing

    with pytest.raises(FakeFailure):
        pool.trim(rung="decommit")

    assert done == [128 * KIB, 64 * KIB]
    assert states(pool) == [(32, SAFE), (64, UNBACKED), (16, SAFE), (128, UNBACKED)]
    agree(pool, provider)
    del provider.decommit
    assert pool.trim(rung="decommit") == 48 * KIB


@pytest.mark.parametrize("rung", NATIVE[:-1])
def test_nobody_gets_memory_whose_wait_failed(
    pool: Pool, provider: LadderedProvider, rung: str
) -> None:
    """A stream may still be at it: not until a wait succeeds."""
    pool.malloc(4 * KIB, 0, 1)
    freed = pool.malloc(64 * KIB, 0, 1)
    pool.free(freed)

    def fail() -> None:
        assert LEAVING in dict(map(reversed, states(pool))), "it has left before the wait"
        raise FakeFailure("as told")

    provider.on_synchronize = fail
    with pytest.raises(FakeFailure):
        pool.trim(rung=rung)
    provider.on_synchronize = None

    assert states(pool) == [(252, RETIRING)]
    assert pool.map.allocate(512, 0, 1) is None
    pool.synchronize()
    assert states(pool) == [(252, SAFE)]
    agree(pool, provider)
    assert pool.trim(rung=rung) == 252 * KIB


def test_hidden_memory_stays_hidden_when_a_wait_fails(
    pool: Pool, provider: LadderedProvider
) -> None:
    pool.malloc(4 * KIB)
    pool.trim(rung="dalloc")
    provider.fail(1)

    with pytest.raises(FakeFailure):
        pool.trim(rung="decommit")

    assert states(pool) == [(252, HIDDEN)]
    agree(pool, provider)


def test_what_is_hidden_is_usable_after_a_purge_that_failed(
    pool: Pool, provider: LadderedProvider
) -> None:
    """It had to be made usable for it, and kept its contents."""
    pool.malloc(4 * KIB)
    pool.trim(rung="dalloc")
    provider.purge_force = lambda ptr, size: provider._record("purge_force") or 1 / 0

    with pytest.raises(ZeroDivisionError):
        pool.trim(rung="purge_force")

    assert states(pool) == [(252, SAFE)]
    agree(pool, provider)


def test_an_extent_that_goes_piece_by_piece_comes_back_in_pieces() -> None:
    """What the provider did not take is there, in the state that it had."""
    for nth in range(1, 6):
        provider = LadderedProvider(ALL & ~Capability.STREAMS)
        pool = Pool(provider, growth=GROWTH)
        live = scattered(pool)
        pool.trim(128 * KIB, rung="decommit")
        pool.trim(64 * KIB, rung="dalloc")
        pool.free(live.pop())
        pool.free(live.pop(0))
        pool.free(live.pop())
        held = provider.live_bytes
        pieces = len(provider.live)
        assert pieces >= 3
        freed = provider.free

        def failing(ptr: int, size: int, freed=freed, provider=provider, nth=nth) -> None:
            if provider.counts["free"] == nth - 1:
                raise FakeFailure("as told")
            freed(ptr, size)

        provider.free = failing
        if nth > pieces:
            assert pool.trim() == held - 128 * KIB
            end(pool, provider)
            break
        with pytest.raises(FakeFailure):
            pool.trim()
        agree(pool, provider)
        assert len(pool.map.extents) == (1 if nth == 1 else pieces - nth + 1)
        assert sum(extent.size for extent in pool.map.extents.values()) == provider.live_bytes
        assert (provider.live_bytes < held) == (nth > 1)
        del provider.free
        end(pool, provider)
    else:
        pytest.fail("the extent had more pieces than were tried")
