"""Random lives of virtual memory, with failing calls in between, against a model of the bytes.

The same on each driver: nothing is lost, nothing is taken for what it is not, and a call that
raises has changed nothing.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from umfpy.errors import InvalidArgument, OutOfMemoryError, UmfpyError
from umfpy.providers.cuda import CudaVmmProvider
from umfpy.providers.emulated import emulate
from umfpy.providers.level_zero import LevelZeroVmmProvider

UNIT = 2 << 20
#: Addresses are reserved in such ranges, so that there are several, which may touch.
SPAN = 16 * UNIT


@dataclass(frozen=True)
class Model:
    """A piece: for each unit its byte, None where there is no memory; and whether it is usable."""

    marks: tuple[int | None, ...]
    usable: bool = True

    @property
    def size(self):
        return len(self.marks) * UNIT

    @property
    def backed(self):
        return sum(mark is not None for mark in self.marks) * UNIT


class VirtualMemory(RuleBasedStateMachine):
    """One provider; the subclass says on which driver."""

    driver: str
    make: type
    unknown: int  #: an error of the driver's that is not "out of memory"

    def __init__(self):
        super().__init__()
        self.emu = emulate(self.driver, memory="256MiB", children=False)
        self.clean = self.emu.leaks()
        self.provider = self.make(reserve=SPAN)
        self.pieces: dict[int, Model] = {}
        self.byte = 0

    def attempt(self, function, *arguments, **options):
        """Call; if an ordered fault gets in the way, nothing may have changed: call again.

        Raises OutOfMemoryError if it was that, and no fault.
        """
        try:
            return function(*arguments, **options)
        except InvalidArgument:
            raise
        except UmfpyError:
            self.pieces_are_those_of_the_model()
            self.look()
            return function(*arguments, **options)

    def pick(self, data, **wanted):
        fits = [
            ptr
            for ptr, piece in self.pieces.items()
            if all(getattr(piece, name) == value for name, value in wanted.items())
        ]
        # By position: addresses are not the same in every run.
        return fits[data.draw(st.integers(0, len(fits) - 1))] if fits else None

    def reservation(self, ptr):
        self.emu.clear_faults()
        (found,) = (
            item.address
            for item in self.emu.live()["reservations"]
            if item.address <= ptr < item.address + item.size
        )
        return found

    @initialize(sizes=st.lists(st.integers(1, 6), min_size=3, max_size=6))
    def begin(self, sizes):
        for at, units in enumerate(sizes):
            if at % 3:
                self.alloc(units, 0)
            else:
                self.reserve(units, 0)

    @rule(nth=st.integers(1, 12))
    def a_call_will_fail(self, nth):
        self.emu.clear_faults()
        self.emu.fail("*", nth=nth, error=self.unknown)

    @precondition(lambda self: len(self.pieces) < 10)
    @rule(units=st.integers(1, 6), alignment=st.sampled_from([0, UNIT, 8 * UNIT]))
    def alloc(self, units, alignment):
        ptr = self.attempt(self.provider.alloc, units * UNIT, alignment)
        assert ptr % max(alignment, UNIT) == 0
        # What an ordered fault did not hit by now, it does not hit: fresh memory may hold anything.
        self.emu.clear_faults()
        self.provider.zero(ptr, units * UNIT)
        self.pieces[ptr] = Model((0,) * units)

    @precondition(lambda self: len(self.pieces) < 10)
    @rule(units=st.integers(1, 12), alignment=st.sampled_from([0, 4 * UNIT]))
    def reserve(self, units, alignment):
        ptr = self.attempt(self.provider.reserve, units * UNIT, alignment)
        assert ptr % max(alignment, UNIT) == 0
        self.pieces[ptr] = Model((None,) * units, usable=False)

    @rule(data=st.data())
    def free(self, data):
        if (ptr := self.pick(data)) is not None:
            self.attempt(self.provider.free, ptr, self.pieces[ptr].size)
            del self.pieces[ptr]

    @rule(data=st.data())
    def split(self, data):
        ptr = self.pick(data)
        if ptr is None or len(self.pieces[ptr].marks) < 2:
            return
        piece = self.pieces[ptr]
        at = data.draw(st.integers(1, len(piece.marks) - 1))
        cut = ptr + at * UNIT
        found = self.provider.chunks(ptr, piece.size)
        if any(chunk.ptr < cut < chunk.ptr + chunk.size for chunk in found):
            with pytest.raises(InvalidArgument, match="inside a chunk"):
                self.provider.split(ptr, piece.size, at * UNIT)
            return
        self.provider.split(ptr, piece.size, at * UNIT)
        self.pieces[ptr] = replace(piece, marks=piece.marks[:at])
        self.pieces[cut] = replace(piece, marks=piece.marks[at:])

    @rule(data=st.data())
    def merge(self, data):
        low = self.pick(data)
        high = low + self.pieces[low].size if low is not None else None
        if low is None or high not in self.pieces:
            return
        first, second = self.pieces[low], self.pieces[high]
        size = first.size + second.size
        apart = self.reservation(low) != self.reservation(high)
        if apart or first.usable is not second.usable:
            with pytest.raises(InvalidArgument):
                self.provider.merge(low, high, size)
            return
        self.provider.merge(low, high, size)
        self.pieces[low] = replace(first, marks=first.marks + second.marks)
        del self.pieces[high]

    @rule(data=st.data())
    def write(self, data):
        if (ptr := self.pick(data, usable=True)) is not None:
            piece = self.pieces[ptr]
            at = data.draw(st.integers(0, len(piece.marks) - 1))
            self.byte = self.byte % 255 + 1
            # The bytes may be there although the copy failed: nobody looks in between.
            copy = functools.partial(
                self.provider.copy, ptr + at * UNIT, bytes([self.byte]) * UNIT, UNIT
            )
            try:
                copy()
            except UmfpyError:
                copy()
            marks = (*piece.marks[:at], self.byte, *piece.marks[at + 1 :])
            self.pieces[ptr] = replace(piece, marks=marks)

    @rule(data=st.data())
    def decommit(self, data):
        if (ptr := self.pick(data)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.decommit, ptr, piece.size)
            self.pieces[ptr] = Model((None,) * len(piece.marks), usable=False)

    @rule(data=st.data())
    def dalloc(self, data):
        if (ptr := self.pick(data)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.dalloc, ptr, piece.size)
            self.pieces[ptr] = replace(piece, usable=False)

    @rule(data=st.data(), clear=st.booleans(), units=st.sampled_from([None, 1, 2, 3, 16]))
    def commit(self, data, clear, units):
        if (ptr := self.pick(data, usable=False) or self.pick(data)) is None:
            return
        piece = self.pieces[ptr]
        how = {"clear": clear, "chunk_size": units and units * UNIT}
        try:
            self.attempt(self.provider.commit, ptr, piece.size, **how)
        except OutOfMemoryError:
            held = sum(each.backed for each in self.pieces.values())
            assert held + piece.size - piece.backed > 256 << 20
            return
        self.pieces[ptr] = Model(tuple(mark or 0 for mark in piece.marks))
        if not clear:
            self.emu.clear_faults()
            for at, mark in enumerate(piece.marks):
                if mark is None:
                    self.provider.zero(ptr + at * UNIT, UNIT)

    @rule(data=st.data(), fits=st.booleans())
    def remap(self, data, fits):
        backed = [ptr for ptr, piece in self.pieces.items() if piece.backed]
        if not backed:
            return
        chosen = data.draw(st.lists(st.integers(0, len(backed) - 1), unique=True, min_size=1))
        sources = [(backed[at], self.pieces[backed[at]].size) for at in chosen]
        moved = sum(self.pieces[ptr].backed for ptr, _ in sources)
        if fits:
            to = self.attempt(self.provider.reserve, moved)
            self.pieces[to] = Model((None,) * (moved // UNIT), usable=False)
        else:
            to = self.pick(data, usable=False)
        if to is None or to in dict(sources):
            return
        target = self.pieces[to]
        if target.backed or moved != target.size:
            with pytest.raises(InvalidArgument):
                self.provider.remap(sources, to, target.size)
            return
        self.attempt(self.provider.remap, sources, to, target.size)
        self.emu.clear_faults()
        self.provider.zero(to, target.size)
        self.pieces[to] = Model((0,) * len(target.marks))
        for ptr, _ in sources:
            piece = self.pieces[ptr]
            self.pieces[ptr] = Model((None,) * len(piece.marks), usable=False)

    @rule(data=st.data(), units=st.integers(1, 3))
    def extend(self, data, units):
        if (ptr := self.pick(data, usable=True)) is None:
            return
        piece = self.pieces[ptr]
        if self.attempt(self.provider.extend, ptr, piece.size, units * UNIT):
            self.emu.clear_faults()
            self.provider.zero(ptr + piece.size, units * UNIT)
            self.pieces[ptr] = replace(piece, marks=piece.marks + (0,) * units)

    @rule(data=st.data())
    def purge(self, data):
        if (ptr := self.pick(data, usable=True)) is not None:
            piece = self.pieces[ptr]
            try:
                self.provider.purge_force(ptr, piece.size)
            except UmfpyError:
                self.provider.purge_force(ptr, piece.size)
            self.pieces[ptr] = Model((0,) * len(piece.marks))

    @rule()
    def trim(self):
        self.emu.clear_faults()
        self.provider.trim()
        backed = sum(piece.backed for piece in self.pieces.values())
        assert self.provider.kept_bytes == 0
        assert self.provider.reserved_bytes == backed
        assert sum(item.size for item in self.emu.live().get("handles", [])) == backed

    @invariant()
    def pieces_are_those_of_the_model(self):
        assert self.provider.live_count() == len(self.pieces)
        for ptr, piece in self.pieces.items():
            found = self.provider.chunks(ptr, piece.size)
            units = {at for chunk in found for at in range(chunk.ptr, chunk.ptr + chunk.size, UNIT)}
            marked = {ptr + at * UNIT for at, mark in enumerate(piece.marks) if mark is not None}
            assert marked == units

    @rule()
    def look(self):
        self.emu.clear_faults()
        for ptr, piece in self.pieces.items():
            for at, mark in enumerate(piece.marks if piece.usable else ()):
                seen = bytearray(16)
                self.provider.copy(seen, ptr + at * UNIT, 8)
                self.provider.copy(memoryview(seen)[8:], ptr + (at + 1) * UNIT - 8, 8)
                assert seen == bytes([mark]) * 16

    def teardown(self):
        try:
            self.look()
        finally:
            self.emu.clear_faults()
            for ptr, piece in self.pieces.items():
                self.provider.free(ptr, piece.size)
            self.provider.close()
        assert self.emu.leaks() == self.clean


class Cuda(VirtualMemory):
    driver, make, unknown = "cuda", CudaVmmProvider, 999


class LevelZero(VirtualMemory):
    driver, make, unknown = "level_zero", LevelZeroVmmProvider, 0x7FFFFFFE


TestCuda, TestLevelZero = Cuda.TestCase, LevelZero.TestCase
TestCuda.settings = TestLevelZero.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None
)
