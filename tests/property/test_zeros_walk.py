"""Whoever asks for zeros finds zeros, in real memory that others have written all over."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any

import pytest

from tests.fakes.structs import Structures
from umfpy import Growth, MemoryManager, Pool, ProxyPool, SlabPool, find
from umfpy.core.registry import innermost
from umfpy.pools.base import ProviderPool
from umfpy.providers.host import HostProvider

PAGE = 4096
STEPS = 3_000
PERIOD = 251  # of the pattern: a prime, so that no page looks like the one before
PATTERN = bytes(range(1, PERIOD + 1)) * (1 + (1 << 18) // PERIOD)
GROWTH = Growth(32 * PAGE, 64 * PAGE)


class CountingProvider(HostProvider):
    """Host memory that counts the bytes it is asked to clear."""

    def __init__(self) -> None:
        super().__init__()
        self.cleared = 0

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        self.cleared += size
        super().zero(ptr, size, stream)


def pattern(ptr: int, size: int) -> bytes:
    """What belongs at an address: no zero in it."""
    return PATTERN[ptr % PERIOD : ptr % PERIOD + size]


class Walk:
    """Memory that is filled with its pattern as soon as it is got, and looked at when it goes."""

    def __init__(self, pool: Any, seed: int) -> None:
        self.pool = pool
        self.random = random.Random(seed)
        self.live: list[tuple[Any, int, int]] = []  # (allocation or None, address, bytes)
        self.zeros = 0

    def allocate(self) -> None:
        size = self.random.choice((0, 1, PAGE - 1, PAGE, self.random.randrange(12 * PAGE)))
        alignment = self.random.choice((0, 0, 0, 4 * PAGE))
        zero = self.random.random() < 0.5
        held = None
        if self.random.random() < 0.5:
            held = self.pool.allocate(size, alignment, zero=zero)
            ptr = held.ptr
        else:
            ptr = self.pool.malloc(size, alignment, zero=zero)
        self.live.append((held, ptr, size))
        if zero:
            self.zeros += size
            assert ctypes.string_at(ptr, size).count(0) == size, "it reads as zero"
        ctypes.memmove(ptr, pattern(ptr, size), size)

    def free(self) -> None:
        if not self.live:
            return
        place = self.random.randrange(len(self.live))
        self.live[place], self.live[-1] = self.live[-1], self.live[place]
        _, ptr, size = self.live[-1]
        assert ctypes.string_at(ptr, size) == pattern(ptr, size), "nobody else wrote here"
        self.give(*self.live.pop())

    def give(self, held: Any, ptr: int, size: int) -> None:
        if held is None:
            self.pool.free(ptr, size)
        else:
            held.free()

    def resize(self) -> None:
        """What is kept is as it was, and what comes reads as zero where that was asked."""
        if not self.live:
            return
        place = self.random.randrange(len(self.live))
        held, ptr, size = self.live[place]
        new = self.random.randrange(12 * PAGE)
        zero = self.random.random() < 0.5
        if held is None or not held.resize(new, zero=zero):
            return
        self.live[place] = (held, ptr, new)
        kept = min(size, new)
        assert ctypes.string_at(ptr, kept) == pattern(ptr, kept), "nobody else wrote here"
        if zero:
            self.zeros += new - kept
            grown = ctypes.string_at(ptr + kept, new - kept)
            assert grown.count(0) == new - kept, "it reads as zero"
        ctypes.memmove(ptr, pattern(ptr, new), new)

    def trim(self) -> None:
        self.pool.trim(self.random.choice((0, 16 * PAGE)))

    def step(self) -> None:
        self.random.choices((self.allocate, self.free, self.resize, self.trim), (45, 44, 10, 1))[
            0
        ]()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step()
        self.pool.check("full")

    def end(self) -> None:
        while self.live:
            self.free()
        self.pool.close()

    def end_blindly(self) -> None:
        """Free everything, whatever became of it."""
        while self.live:
            self.give(*self.live.pop())
        self.pool.check("full")
        self.pool.close()


KINDS: dict[str, Callable[[HostProvider], Any]] = {
    "pool": lambda provider: Pool(provider, growth=GROWTH),
    "nested": lambda provider: Pool(Pool(provider, growth=GROWTH), growth=Growth(16 * PAGE)),
    "proxy": lambda provider: ProxyPool(provider),
    "slab": lambda provider: SlabPool(provider, slab_size=16 * PAGE, largest=8 * PAGE),
    "slices": lambda provider: MemoryManager(provider, "sub_slices"),
    "pages": lambda provider: MemoryManager(provider, "exclusive_pages"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_are_there_whatever_was_there_before(kind: str) -> None:
    # given
    provider = CountingProvider()
    walk = Walk(KINDS[kind](provider), seed=len(kind))

    # when
    walk.run(STEPS)

    # then
    walk.end()
    assert walk.zeros > 0
    # The provider's zeros are taken as they are, but for what is used again.
    assert (0 if kind == "proxy" else 1) <= provider.cleared <= walk.zeros
    assert kind == "nested" or provider.cleared < walk.zeros


def lower_frontiers(pool: ProviderPool, by: int | None) -> None:
    """Plant the fault that used memory counts as fresh: `by` bytes of it, or all."""
    structures = Structures(pool.map)
    for index in pool.map.extents:
        extent = structures.extent(index)
        extent.fresh = extent.base if by is None else max(extent.base, extent.fresh - by)


@pytest.mark.parametrize("by", [None, PAGE], ids=["to the base", "by a granule"])
def test_a_frontier_that_is_too_low_is_seen(by: int | None) -> None:
    # given
    pool = KINDS["pool"](CountingProvider())
    walk = Walk(pool, seed=1)
    walk.run(STEPS // 10)

    def go_on() -> None:
        for _ in range(STEPS):
            lower_frontiers(pool, by)
            walk.step()

    # when, then
    with pytest.raises(AssertionError, match="it reads as zero"):
        go_on()
    lower_frontiers(pool, None)
    with pytest.raises(AssertionError, match="beyond the frontier"):
        pool.check("full")
    for index in pool.map.extents:
        extent = Structures(pool.map).extent(index)
        extent.fresh = extent.base + extent.size
    walk.end_blindly()


def test_writing_beyond_the_part_that_is_used_is_seen() -> None:
    """The pattern is kept by everybody else while one is cleared."""
    # given
    provider = CountingProvider()
    walk = Walk(Pool(provider, growth=GROWTH), seed=2)
    walk.run(STEPS // 10)
    clear = provider.zero

    def clear_too_much(ptr: int, size: int, stream: int | None = None) -> None:
        last = ptr + size + PAGE - 1
        neighbour = find(last) is not None and innermost(last) is innermost(ptr)
        clear(ptr, size + PAGE if neighbour else size, stream)

    provider.zero = clear_too_much

    # when, then
    with pytest.raises(AssertionError, match="nobody else wrote here"):
        walk.run(STEPS)
    walk.end_blindly()
