"""Every driver call of a pool over virtual memory fails once: live memory never learns of it."""

from __future__ import annotations

import contextlib
import functools
import random
from collections.abc import Callable

import pytest

from tests.fakes.driver_faults import UNKNOWN, Faults
from tests.fakes.stamped import Stamped, elsewhere
from tests.fakes.virtual import agree
from umfpy import (
    Allocation,
    CudaVmmProvider,
    DriverError,
    OutOfMemoryError,
    Pool,
    VirtualGrowth,
)
from umfpy.pools.rungs import RUNGS
from umfpy.providers.emulated import EmulatedCuda

MIB = 1 << 20
UNIT = 2 * MIB
OUT_OF_MEMORY = 2
GROWTH = VirtualGrowth(small_until=0, minimum=4 * MIB)


class Script:
    """Uses everything; a step that fails has changed nothing that is live, and works then."""

    def __init__(self, faults: Faults, *, limit: int | None = None) -> None:
        self.faults = faults
        self.provider = CudaVmmProvider()
        self.pool = Pool(self.provider, growth=GROWTH, limit_bytes=limit)
        self.stamped = Stamped(self.pool)
        self.failures = 0

    def step(self, call: Callable[..., object], *arguments: object, **options: object) -> object:
        """Make a call that may fail, and make it again if it does."""
        before = self.live()
        try:
            with self.faults.watching():
                return call(*arguments, **options)
        except (DriverError, OutOfMemoryError):
            self.failures += 1
            assert self.live() == before
            agree(self.pool)
            self.stamped.check()
            return call(*arguments, **options)

    def live(self) -> tuple[object, ...]:
        """What must not change if a call fails."""
        now = self.pool.stats()
        used = [block for block in self.pool.map.blocks() if block[2]]
        return used, now.requested_bytes, now.used_bytes, now.live_allocations

    def take(self, *arguments: object, **options: object) -> Allocation:
        made = self.step(functools.partial(self.pool.allocate, *arguments, **options))
        assert isinstance(made, Allocation)
        self.stamped.enter(made)
        return made

    def resize(self, allocation: Allocation, size: int) -> None:
        """Resize; a device that said that it is full is asked again."""
        if not self.step(allocation.resize, size):
            assert allocation.resize(size)
        self.stamped.stamp(allocation)

    def run(self) -> None:
        stamped, pool, step = self.stamped, self.pool, self.step
        small = [self.take(4 * MIB) for _ in range(6)]
        array = self.take(UNIT, elsewhere(*small))
        self.resize(array, 8 * MIB)
        stamped.free(*small[::2])
        large = self.take(14 * MIB)  # out of three holes, and a little more
        stamped.free(large)
        self.resize(array, 20 * MIB)
        for rung in ("dalloc", "purge_force", "decommit"):
            step(pool.trim, MIB, rung=rung)
            large = self.take(9 * MIB, zero=True)
            stamped.free(large)
        step(pool.trim)
        ours, theirs = self.take(3 * MIB, 0, 1), self.take(3 * MIB, 0, 2)
        stamped.free(ours, theirs)
        self.take(7 * MIB, 0, 3)
        stamped.check()

    def end(self) -> None:
        """Give everything back; what fails once goes the second time."""
        self.stamped.clear()
        step = self.step
        step(self.pool.close)
        assert self.pool.stats().extents == 0
        step(self.provider.close)


@pytest.mark.parametrize("code", [UNKNOWN, OUT_OF_MEMORY])
def test_nth_driver_call_fails(
    code: int, emu: EmulatedCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = Faults(emu, monkeypatch)
    faults.code = code
    whole = Script(faults)
    whole.run()
    whole.end()
    total, failures = faults.calls, 0
    assert total > 150
    made = {name: emu.calls[name] for name in ("cuMemMap", "cuMemUnmap", "cuMemSetAccess")}
    assert min(made.values()) >= 9

    for nth in range(1, total + 1):
        faults.calls, faults.nth = 0, nth
        script = Script(faults)
        script.run()
        script.end()
        failures += script.failures
        assert faults.calls >= nth
        assert emu.leaks() == {}

    # What is mended, or memory that is found elsewhere, nobody hears of.
    assert failures > total // (2 if code == UNKNOWN else 4)


def test_any_order_while_calls_fail(emu: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    emu.set_memory("128MiB")
    faults = Faults(emu, monkeypatch)
    script, chance = Script(faults), random.Random(1)
    stamped = script.stamped

    def step() -> None:
        faults.calls, faults.nth = 0, chance.randrange(1, 15)
        what, size = chance.random(), chance.choice((700, MIB, 3 * MIB, 9 * MIB, 30 * MIB))
        live = list(stamped.live)
        if what < 0.5:
            with contextlib.suppress(OutOfMemoryError):
                script.take(size, chance.choice((0, 8 * MIB)), chance.randrange(2), zero=what < 0.1)
        elif what < 0.85 and live:
            stamped.free(chance.choice(live))
        elif what < 0.93 and live:
            one = chance.choice(live)
            script.step(one.resize, size)
            stamped.stamp(one)
        elif what > 0.95:
            script.step(script.pool.trim, chance.choice((0, 9 * MIB)), rung=chance.choice(RUNGS))

    for _ in range(700):
        step()
        agree(script.pool)
    stamped.check()
    assert script.failures > 100
    faults.nth = 0
    script.end()


CALLS = [
    "cuMemAddressReserve",
    "cuMemCreate",
    "cuMemMap",
    "cuMemSetAccess",
    "cuMemUnmap",
    "cuMemRelease",
    "cuMemAddressFree",
    "cuCtxSynchronize",
    "cuCtxPushCurrent_v2",
    "cuMemGetInfo_v2",
    "cuMemsetD8Async",
]


@pytest.mark.parametrize("call", CALLS)
def test_a_driver_that_keeps_refusing(call: str, emu: EmulatedCuda) -> None:
    """Nobody waits for ever; when it gives in, everything is served, and nothing is left."""
    provider = CudaVmmProvider()
    pool = Pool(provider, growth=GROWTH)
    stamped = Stamped(pool)
    small = [stamped.allocate(4 * MIB) for _ in range(4)]
    array = stamped.allocate(UNIT, elsewhere(*small))
    stamped.free(*small[::2])

    emu.fail(call, error=UNKNOWN, times=1000)
    for ask in (
        lambda: pool.allocate(8 * MIB),
        lambda: pool.allocate(UNIT, elsewhere(*small, array)),
        lambda: array.resize(16 * MIB),
        lambda: pool.trim(rung="dalloc"),
        lambda: pool.trim(rung="decommit"),
        lambda: pool.allocate(6 * MIB, zero=True),
        pool.trim,
    ):
        with contextlib.suppress(DriverError):
            ask()
        pool.check("full")
    emu.clear_faults()

    pool.synchronize()  # what was set apart for a wait that failed
    if array.size == UNIT:
        assert stamped.resize(array, 16 * MIB)
    stamped.stamp(array)
    for size in (8, 2, 6):
        stamped.allocate(size * MIB)
    stamped.check()
    stamped.clear()
    pool.close()
    assert pool.stats().extents == 0
    provider.close()
    assert emu.leaks() == {}


@pytest.mark.parametrize("call", ["cuMemAddressReserve", "cuMemCreate", "cuMemMap"])
def test_a_device_that_says_it_is_full(call: str, emu: EmulatedCuda) -> None:
    """That is no fault: the error says what is free, and what to do."""
    provider = CudaVmmProvider()
    pool = Pool(provider)
    stamped = Stamped(pool)
    if call != "cuMemAddressReserve":
        stamped.allocate(4 * MIB)
    before = pool.map.blocks()

    emu.fail(call, times=1000)
    with pytest.raises(OutOfMemoryError, match=r"has no 64\.00 MiB \(67108864 bytes\)") as error:
        pool.allocate(64 * MIB)

    assert error.value.requested == 64 * MIB
    assert pool.map.blocks() == before
    emu.clear_faults()
    stamped.allocate(64 * MIB)
    stamped.check()
    stamped.clear()
    pool.close()
    provider.close()
    assert emu.leaks() == {}


@pytest.mark.parametrize("call", ["cuMemMap", "cuMemSetAccess"])
def test_a_device_that_says_it_is_full_while_memory_moves(call: str, emu: EmulatedCuda) -> None:
    """That is a lack of memory as every other: what can be done about it is tried."""
    provider = CudaVmmProvider()
    pool = Pool(provider)
    asked: list[int] = []
    pool.on_out_of_memory(lambda missing: asked.append(missing) or False)
    stamped = Stamped(pool)
    small = [stamped.allocate(8 * MIB) for _ in range(6)]
    array = stamped.allocate(MIB)
    stamped.free(*small[::2])

    emu.fail(call, times=1000)
    with pytest.raises(OutOfMemoryError, match=r"has no 24\.00 MiB \(25165824 bytes\)"):
        pool.allocate(24 * MIB)
    assert asked == [24 * MIB]
    assert not stamped.resize(array, 20 * MIB)
    agree(pool)
    emu.clear_faults()

    small = [stamped.allocate(8 * MIB) for _ in range(3)]
    stamped.free(*small)
    emu.fail(call)
    stamped.allocate(24 * MIB)
    assert asked == [24 * MIB]
    agree(pool)
    stamped.check()
    stamped.clear()
    pool.close()
    provider.close()
    assert emu.leaks() == {}


def test_waking_that_finds_no_memory(emu: EmulatedCuda) -> None:
    """Nothing has changed, and what sleeps is there when there is memory again."""
    provider = CudaVmmProvider()
    pool = Pool(provider)
    stamped = Stamped(pool)
    small = [stamped.allocate(4 * MIB) for _ in range(4)]
    stamped.free(*small[::2])
    assert pool.trim(rung="decommit") == 8 * MIB
    provider.trim()
    before = pool.map.blocks(), pool.stats().unbacked_bytes

    emu.fail("cuMemCreate", times=1000)
    with pytest.raises(OutOfMemoryError):
        pool.allocate(4 * MIB)

    assert (pool.map.blocks(), pool.stats().unbacked_bytes) == before
    agree(pool)
    stamped.check()
    emu.clear_faults()
    stamped.allocate(4 * MIB)
    stamped.clear()
    pool.close()
    provider.close()


def test_a_pool_that_cannot_be_made(emu: EmulatedCuda) -> None:
    provider = CudaVmmProvider()
    emu.fail("cuMemGetInfo_v2", error=UNKNOWN)

    with pytest.raises(DriverError, match="cuMemGetInfo"):
        Pool(provider)

    Pool(provider).close()
    provider.close()
    assert emu.leaks() == {}


def test_a_pool_that_cannot_be_closed(emu: EmulatedCuda) -> None:
    provider = CudaVmmProvider()
    pool = Pool(provider)
    pool.allocate(UNIT).free()
    emu.fail("cuMemUnmap", error=UNKNOWN)

    with pytest.raises(DriverError, match="cuMemUnmap"):
        pool.close()
    agree(pool)

    pool.close()
    assert pool.stats().extents == 0
    provider.close()
    assert emu.leaks() == {}


def twice(emu: EmulatedCuda, first: tuple[str, int], second: tuple[str, int]) -> None:
    """Have a call fail, and then the one that would undo what was done before it."""
    for call, error in (first, second):
        emu.fail(call, error=error)


@pytest.mark.parametrize("error", [UNKNOWN, OUT_OF_MEMORY])
def test_memory_that_could_not_be_put_back_is_usable_again(
    emu: EmulatedCuda, provider: CudaVmmProvider, error: int
) -> None:
    pool = Pool(provider)
    hole, grows = pool.allocate(4 * MIB), pool.allocate(MIB)
    hole.free()
    twice(emu, ("cuMemMap", error), ("cuMemSetAccess", UNKNOWN))
    with contextlib.nullcontext() if error == OUT_OF_MEMORY else pytest.raises(DriverError):
        assert not grows.resize(5 * MIB)
    pool.check("full")
    emu.clear_faults()
    for size in (MIB - 999, 3 * MIB, 4 * MIB):
        with pool.allocate(size) as block:
            provider.copy(block.ptr, bytes(size), size)
    grows.free()
    pool.close()


def test_memory_that_could_not_be_taken_away_again_is_not_in_the_way(
    emu: EmulatedCuda, provider: CudaVmmProvider
) -> None:
    pool = Pool(provider)
    twice(emu, ("cuMemSetAccess", 999), ("cuMemUnmap", 999))
    with pytest.raises(DriverError):
        pool.allocate(4 * MIB)
    emu.clear_faults()
    small, large = pool.allocate(390), pool.allocate(4 * MIB)
    for block in (small, large):
        provider.copy(block.ptr, bytes(block.size), block.size)
    pool.check("full")
    small.free()
    large.free()
    pool.close()
