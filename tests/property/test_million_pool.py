"""Half a million steps over small pools, every invariant checked after each."""

from __future__ import annotations

from itertools import cycle

import pytest

from tests.fakes.provider import FakeFailure
from tests.property.cells import GRANULE, CellProvider
from tests.property.choices import Choice, choices
from umfpy import Allocation, Growth, OutOfMemoryError, Pool
from umfpy.core.extents import SAFE

STEPS = 130_000
STREAMS = 3
KINDS = ("allocate", "free", "resize", "wait", "trim", "fail")
WEIGHTS = (450, 430, 100, 10, 5, 5)  # how often each comes
KIB = 1 << 10


class Walk:
    """Pools over one provider, the second inside the first, and what is live in them."""

    def __init__(self, *, ordered: bool, nested: bool) -> None:
        self.ordered = ordered
        self.provider = CellProvider(capacity=128 * KIB, ordered=ordered)
        self.cells = self.provider.cells
        self.pools = [Pool(self.provider, growth=Growth(16 * KIB, 32 * KIB))]
        if nested:
            self.pools.append(Pool(self.pools[0], growth=Growth(8 * KIB, 16 * KIB)))
        self.live: list[tuple[Pool, int, int, Allocation | None, int]] = []
        self.steps = 0
        self.refused = 0
        self.resized = 0

    def allocate(self, choice: Choice) -> None:
        pool = self.pools[choice.pick % len(self.pools)]
        held: Allocation | None = None
        try:
            if choice.pick & 2:
                held = pool.allocate(choice.size, choice.alignment, choice.stream)
                start: int = held.ptr
            else:
                start = pool.malloc(choice.size, choice.alignment, choice.stream)
        except (OutOfMemoryError, FakeFailure):
            self.refused += 1
            return
        assert start % max(choice.alignment, GRANULE) == 0, "aligned"
        stream = choice.stream + 1 if self.ordered else 0
        self.cells.take(start, choice.size, stream)
        self.live.append((pool, start, choice.size, held, stream))

    def free(self, choice: Choice) -> None:
        if not self.live:
            return
        place = choice.pick % len(self.live)
        self.live[place], self.live[-1] = self.live[-1], self.live[place]
        pool, start, size, held, made_on = self.live.pop()
        if held is None:
            pool.free(start, size, choice.stream)
            made_on = choice.stream + 1 if self.ordered else 0
        del held  # an object that is dropped is freed on the stream that it was made on
        self.cells.give(start, size, made_on)

    def resize(self, choice: Choice) -> None:
        """An allocation takes another size where it lies, or is as it was."""
        if not self.live:
            return
        place = choice.pick % len(self.live)
        pool, start, size, held, stream = self.live[place]
        if held is None:
            return
        old, new = (-(-max(each, 1) // GRANULE) * GRANULE for each in (size, choice.size))
        free = new <= old or self.is_free(start, old, new)
        done = held.resize(choice.size)
        # What another stream may still be using is free, and so is what the inner pool keeps.
        assert done == free or (free and (self.ordered or len(self.pools) > 1))
        assert (held.ptr, held.size) == (start, choice.size if done else size)
        if not done:
            return
        self.resized += 1
        if new > old:
            self.cells.take(start + old, new - old, stream)
        if new < old:
            self.cells.give(start + new, old - new, stream)
        self.live[place] = (pool, start, choice.size, held, stream)

    def is_free(self, start: int, old: int, new: int) -> bool:
        """Whether nobody has what lies between two sizes, in the same extent from the provider."""
        return any(
            base <= start and start + new <= base + length
            for base, length in self.provider.live.items()
        ) and self.cells.is_free(start + old, new - old, SAFE)

    def wait(self, choice: Choice) -> None:
        self.pools[choice.pick % len(self.pools)].synchronize()

    def trim(self, choice: Choice) -> None:
        pool = self.pools[choice.pick % len(self.pools)]
        before = pool.stats().reserved_bytes
        assert pool.trim(choice.size) == before - pool.stats().reserved_bytes

    def fail(self, choice: Choice) -> None:
        self.provider.fail(1 + choice.pick % 3)

    def run(self, steps: int, made: list[Choice]) -> None:
        calls = dict(
            zip(
                KINDS,
                (self.allocate, self.free, self.resize, self.wait, self.trim, self.fail),
                strict=True,
            )
        )
        checks = [pool.check for pool in self.pools]
        for choice in cycle(made):
            try:
                calls[choice.kind](choice)
            except FakeFailure:
                assert choice.kind in ("wait", "trim")
            for check in checks:
                check("full")
            self.steps += 1
            if self.steps == steps:
                return

    def end(self) -> None:
        """Free everything; then all of it goes back."""
        self.provider.recover()
        while self.live:
            self.free(Choice("free", 0, 0, 0, 0))
        assert self.cells.used == 0
        for pool in reversed(self.pools):
            pool.close()
            pool.check("full")
            assert pool.stats().reserved_bytes == 0
        assert not self.provider.live


@pytest.mark.parametrize("ordered", [False, True], ids=["one order", "streams"])
@pytest.mark.parametrize("nested", [False, True], ids=["plain", "nested"])
def test_pools_keep_every_invariant(ordered: bool, nested: bool) -> None:
    # given
    walk = Walk(ordered=ordered, nested=nested)

    # when
    made = choices(2 * ordered + nested, STREAMS, KINDS, WEIGHTS, largest=8 * KIB)
    walk.run(STEPS, made)

    # then
    assert walk.steps == STEPS
    assert 0 < walk.refused < STEPS // 4
    assert walk.resized > STEPS // 100
    walk.end()
