"""Several streams on one pool over virtual memory: no stream gets what another may still use."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.fakes.stamped import Stamped, elsewhere
from umfpy import (
    Allocation,
    CudaVmmProvider,
    DriverError,
    OutOfMemoryError,
    Pool,
    VirtualGrowth,
)
from umfpy.core.extents import SAFE
from umfpy.pools.rungs import RUNGS
from umfpy.providers.emulated import EmulatedCuda

KIB, MIB = 1 << 10, 1 << 20
CELL = 64 * KIB
UNIT = 2 * MIB


@pytest.fixture
def pool(provider: CudaVmmProvider) -> Iterator[Pool]:
    with Pool(provider) as made:
        yield made
        made.check("full")


class Device:
    """Knows until when freed memory may be in use: until the device was waited for.

    Memory is counted in cells, each with the stream that it was freed on and how often the
    device had been waited for by then.
    """

    def __init__(self, emu: EmulatedCuda, provider: CudaVmmProvider) -> None:
        self.emu = emu
        self.pending: dict[int, tuple[int, int]] = {}
        for call in ("decommit", "dalloc"):
            self._watch(provider, call, lambda ptr, size: [(ptr, size)])
        self._watch(provider, "remap", lambda sources, to, size: sources)

    @property
    def waits(self) -> int:
        return self.emu.calls["cuCtxSynchronize"]

    def freed(self, ptr: int, size: int, stream: int) -> None:
        for cell in range(ptr, ptr + size, CELL):
            self.pending[cell] = (stream, self.waits)

    def taken(self, ptr: int, size: int, stream: int) -> None:
        """Raise if another stream may still be using a part of it."""
        assert ptr % CELL == 0
        for cell in range(ptr, ptr + size, CELL):
            last, waits = self.pending.pop(cell, (stream, 0))
            assert last == stream or waits < self.waits, f"stream {last} may be using {cell:#x}"

    def _watch(self, provider, call, ranges) -> None:
        """Check that memory which loses its addresses was waited for."""
        native = getattr(provider, call)

        def watched(*arguments: object) -> None:
            native(*arguments)
            for ptr, size in ranges(*arguments):
                for cell in range(ptr, ptr + size, CELL):
                    _, waits = self.pending.pop(cell, (0, -1))
                    assert waits < self.waits, f"{call} of {cell:#x} without a wait"

        setattr(provider, call, watched)


@pytest.mark.parametrize("memory", ["64MiB", "4GiB"])
def test_any_order_on_several_streams(
    emu: EmulatedCuda, provider: CudaVmmProvider, pool: Pool, memory: str
) -> None:
    emu.set_memory(memory)
    device = Device(emu, provider)
    chance = random.Random(memory)
    live: list[tuple[Allocation, int]] = []
    refused = reused = 0
    for _ in range(3000):
        stream = chance.randrange(1, 4)
        size = chance.choice((1, 2, 7, 40, 100)) * CELL
        step = chance.random()
        if step < 0.45:
            try:
                made = pool.allocate(size, 0, stream)
            except OutOfMemoryError:
                refused += 1
                continue
            reused += any(cell in device.pending for cell in range(made.ptr, made.ptr + size, CELL))
            device.taken(made.ptr, size, stream)
            live.append((made, stream))
        elif step < 0.9 and live:
            made, on = live.pop(chance.randrange(len(live)))
            on = stream if chance.random() < 0.2 else on
            device.freed(made.ptr, made.size, on)
            made.free(on)
        elif step < 0.97 and live:
            made, on = chance.choice(live)
            old = made.size
            if made.resize(size) and size > old:
                device.taken(made.ptr + old, size - old, on)
            elif made.size < old:
                device.freed(made.ptr + size, old - size, on)
        elif step > 0.985:
            pool.trim(chance.randrange(8) * MIB, rung=chance.choice(RUNGS))
        pool.check("cheap")
    assert reused > 300
    assert (refused > 0) is (memory == "64MiB")
    assert device.waits < 1500, "not for every request"
    while live:
        live.pop()[0].free()


def test_the_same_stream_waits_for_nobody(emu: EmulatedCuda, pool: Pool) -> None:
    for size in (8 * MIB, 3 * MIB, 8 * MIB):
        pool.allocate(size, 0, 1).free()

    assert emu.calls["cuCtxSynchronize"] == 0
    assert pool.stats().reserved_bytes == 8 * MIB


def test_another_stream_waits_where_that_serves_it(emu: EmulatedCuda, pool: Pool) -> None:
    keep = pool.allocate(512, 0, 2)
    pool.allocate(64 * MIB, 0, 1).free()
    held, waits = pool.stats().reserved_bytes, emu.calls["cuCtxSynchronize"]

    made = pool.allocate(32 * MIB, 0, 2)

    assert emu.calls["cuCtxSynchronize"] == waits + 1
    assert pool.stats().reserved_bytes == held
    made.free()
    keep.free()


def test_it_does_not_wait_for_less_than_it_needs(emu: EmulatedCuda, pool: Pool) -> None:
    keep = pool.allocate(512, 0, 2)
    pool.allocate(16 * MIB, 0, 1).free()
    held, waits = pool.stats().reserved_bytes, emu.calls["cuCtxSynchronize"]

    made = pool.allocate(32 * MIB, 0, 2)

    assert emu.calls["cuCtxSynchronize"] == waits
    assert held + 30 * MIB <= pool.stats().reserved_bytes <= held + 32 * MIB
    made.free()
    keep.free()


def test_memory_of_another_stream_moves_after_the_wait(emu: EmulatedCuda, pool: Pool) -> None:
    """Holes of the first stream become one piece for the second."""
    stamped = Stamped(pool)
    blocks = [stamped.allocate(8 * MIB, 0, 1) for _ in range(6)]
    stamped.free(*blocks[::2])
    waits = emu.calls["cuCtxSynchronize"]

    stamped.allocate(24 * MIB, 0, 2)

    assert emu.calls["cuCtxSynchronize"] > waits
    assert pool.stats().reserved_bytes == 48 * MIB
    stamped.check()
    stamped.clear()


def test_each_stream_grows_by_itself(emu: EmulatedCuda, pool: Pool) -> None:
    """New memory was nobody's: there is nothing to wait for."""
    live = [pool.allocate(UNIT, 0, stream) for stream in range(1, 9)]

    assert emu.calls["cuCtxSynchronize"] == 0
    assert pool.stats().reserved_bytes == 8 * UNIT
    live.clear()


def test_a_wait_that_fails_gives_nobody_the_memory(
    emu: EmulatedCuda, provider: CudaVmmProvider
) -> None:
    pool = Pool(provider, growth=VirtualGrowth(small_until=1 << 60))
    stamped = Stamped(pool)
    blocks = [stamped.allocate(8 * MIB, 0, 1) for _ in range(4)]
    aside = elsewhere(*blocks)
    keep = stamped.allocate(512, 0, 2)
    stamped.free(*blocks[::2])
    emu.fail("cuCtxSynchronize", error=999, times=2)

    for _ in range(2):
        with pytest.raises(DriverError, match="cuCtxSynchronize"):
            pool.allocate(16 * MIB, aside, 2)
        safe = pool.map.free_ranges(SAFE)
        assert not any(
            start <= block.ptr < start + size for block in blocks for start, size in safe
        )
    stamped.check()

    assert stamped.allocate(16 * MIB, aside, 2).size == 16 * MIB
    assert pool.stats().reserved_bytes == 32 * MIB + UNIT
    assert keep in stamped.live
    stamped.check()
    stamped.clear()
    pool.close()
