"""Everything a manager can be asked, in any order, with every invariant checked after each step."""

from __future__ import annotations

import gc
import itertools
import random
from dataclasses import dataclass

import pytest

from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.provider import FakeFailure, FakeProvider
from tests.manager.ladder import Scarce, agree
from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import Capability, Handle, MemoryManager, OutOfMemoryError, find
from umfpy.manager import Binding
from umfpy.pools.rungs import RUNGS

SIZES = (0, 1, 31, 32, 33, 100, 1000, 1024, 3000, 4096, 5000, 9000, 40 * KIB, 70 * KIB)
MIXED = [
    exclusive(0),
    sliced(4 * KIB, 16 * KIB, max_slice_size=512, dealloc_period=20),
    sliced(16 * KIB, max_slice_size=2 * KIB),
    exclusive(16 * KIB, dealloc_period=10),
    sliced(64 * KIB),
    exclusive(128 * KIB, dealloc_period=30),
]
LAYOUTS = {"mixed": MIXED, "sub_slices": "sub_slices", "exclusive_pages": "exclusive_pages"}
DEVICE = 600 * KIB
LADDERS = {
    "parts": LADDER | Capability.SPLIT | Capability.STREAMS,
    "chunks": LADDER | Capability.SPLIT | Capability.STREAMS | Capability.RESERVE,
    "whole": LADDER,
}


@dataclass
class Live:
    """What somebody holds: handle, binding, allocation or address, and where it has to stay."""

    holder: object
    ptr: int
    size: int


class Walk:
    def __init__(self, layout: object, provider: FakeProvider, alignment: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.alignment = alignment
        self.provider = provider
        self.manager = MemoryManager(
            self.provider,
            layout,
            {"max_page_size": MIB, "alignment": alignment},
            persistent=self.random.choice(("enabled", "size-match", "disabled", "enforced")),
            spill=self.random.random() < 0.5,
            limit_bytes=self.random.choice((None, 500 * KIB)),
        )
        self.live: list[Live] = []
        self.pins: list[tuple[Handle, int, int]] = []  # with the range that each keeps

    def step(self) -> None:
        actions = [self.reserve] * 8 + [self.drop] * 7 + [
            self.bind, self.raw, self.cleanup, self.mode, self.capture, self.configure,
            self.fail_soon, self.unpin, self.trim, self.trim,
        ]  # fmt: skip
        try:
            self.random.choice(actions)()
        except FakeFailure:
            self.provider.recover()
        self.check()

    def reserve(self) -> None:
        size = self.random.choice(SIZES)
        before = self.manager.memory_usage()
        try:
            handle = self.manager.reserve(size, stream=self.random.choice((None, 1, 2)))
        except (OutOfMemoryError, FakeFailure):
            assert self.manager.memory_usage().number_allocs == before.number_allocs
            return
        found = self.manager.storage(handle)
        assert found.size == size
        assert found.offset % self.alignment == 0
        self.live.append(Live(handle, found.ptr, size))

    def raw(self) -> None:
        size = self.random.choice(SIZES)
        try:
            if self.random.random() < 0.5:
                allocation = self.manager.allocate(size)
                self.live.append(Live(allocation, allocation.ptr, size))
            else:
                ptr = self.manager.malloc(size)
                self.live.append(Live(ptr, ptr, size))
        except OutOfMemoryError:
            return

    def drop(self) -> None:
        if not self.live:
            return
        gone = self.live.pop(self.random.randrange(len(self.live)))
        if isinstance(gone.holder, int):
            self.manager.free(gone.ptr, gone.size)
        elif self.random.random() < 0.5:
            if isinstance(gone.holder, (Handle, Binding)):
                gone.holder.release()
            else:
                gone.holder.free()

    def bind(self) -> None:
        handles = [one for one in self.live if isinstance(one.holder, Handle)]
        if not handles:
            return
        one = self.random.choice(handles)
        if self.random.random() < 0.5:
            one.holder = one.holder.binding()
        else:
            assigned = Handle()
            self.manager.bind(one.holder, assigned, 5)
            one.holder = assigned

    def cleanup(self) -> None:
        held = self.manager.memory_usage().bytes_reserved
        released = self.manager.cleanup(self.random.random() < 0.5)
        assert self.manager.memory_usage().bytes_reserved == held - released

    def trim(self) -> None:
        before = self.manager.memory_usage()
        keep = self.random.choice((0, 100 * KIB))
        went = self.manager.trim(keep, rung=self.random.choice(RUNGS))
        after = self.manager.memory_usage()
        assert not (went and self.manager.capturing)
        gone = before.bytes_reserved - after.bytes_reserved
        assert gone == (went if went.rung in ("decommit", "free") else 0)
        hidden = after.bytes_hidden - before.bytes_hidden
        assert hidden <= 0 or (hidden, went.rung) == (went, "dalloc")

    def mode(self) -> None:
        self.manager.mode(self.random.choice(("auto", "persistent")))

    def capture(self) -> None:
        if self.manager.capturing:
            for pin in self.manager.capture_end():
                page = self.manager.storage(pin)
                self.pins.append((pin, page.ptr, page.size))
        elif self.random.random() < 0.4:
            self.manager.capture_begin()

    def unpin(self) -> None:
        self.pins.clear()

    def configure(self) -> None:
        dynamic = sum(p.usage.number_allocs for p in self.manager.pool_usage()[1:])
        possible = not dynamic and not self.manager.capturing
        assert self.manager.configure(self.random.choice(list(LAYOUTS.values()))) == possible

    def fail_soon(self) -> None:
        self.provider.fail(self.random.randrange(1, 4))

    def check(self) -> None:
        self.manager.check("full")
        places = sorted((one.ptr, max(one.size, 1)) for one in self.live)
        for (start, size), (following, _) in itertools.pairwise(places):
            assert start + size <= following, "no two overlap"
        for _, start, size in self.pins:
            assert find(start).base == start, "pinned memory lives"
            shared = [ptr for ptr, _ in places if start <= ptr < start + size]
            assert shared in ([], [start]), "and is only whose it was"
        for one in self.live:
            if isinstance(one.holder, (Handle, Binding)):
                assert self.manager.storage(one.holder).ptr == one.ptr, "nothing moves"
            assert find(one.ptr).size == one.size
        usage = self.manager.memory_usage()
        assert usage.bytes_in_use >= sum(one.size for one in self.live)
        assert usage.number_allocs >= len(self.live)
        if isinstance(self.provider, Scarce):
            agree(self.manager, self.provider)
        else:
            assert usage.bytes_reserved == self.provider.live_bytes
        assert usage.bytes_in_use + usage.bytes_padding <= usage.bytes_reserved

    def finish(self) -> None:
        self.provider.recover()
        self.manager.capture_end().clear()
        self.pins.clear()
        while self.live:
            self.drop()
        gc.collect()  # what a caught error's frames still hold
        usage = self.manager.memory_usage()
        assert (usage.number_allocs, usage.bytes_in_use, usage.bytes_padding) == (0, 0, 0)
        self.manager.cleanup(True)
        assert not self.provider.live
        self.manager.close()


def walk(layout: object, provider: FakeProvider, alignment: int, seed: int) -> None:
    made = Walk(layout, provider, alignment, seed)
    for _ in range(400):
        made.step()
    made.finish()


# The providers fail; where they do so in what waited for the end of a capture, it is told.
told = pytest.mark.filterwarnings(
    "ignore:giving memory back after a capture failed:ResourceWarning"
)


@told
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("alignment", [32, 50])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_random_walk(name: str, alignment: int, seed: int) -> None:
    provider = FakeProvider(
        granule=alignment & -alignment, capacity=DEVICE, capabilities=Capability.STREAMS
    )
    walk(LAYOUTS[name], provider, alignment, seed)


@told
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("ladder", LADDERS)
@pytest.mark.parametrize("alignment", [32, 50])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_random_walk_down_the_ladder(name: str, alignment: int, ladder: str, seed: int) -> None:
    walk(LAYOUTS[name], Scarce(DEVICE, LADDERS[ladder]), alignment, seed)
