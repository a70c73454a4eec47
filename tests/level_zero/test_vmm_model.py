"""Random lives of virtual memory, with failing calls in between, against a model of the bytes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.providers.emulated import emulate
from umfpy.providers.level_zero import LevelZeroVmmProvider

PAGE = 64 << 10
UNKNOWN = 0x7FFFFFFE


@dataclass(frozen=True)
class Model:
    """A piece: one byte a page, None where there is no memory; from which allocation, and which
    page of it; and whether it is accessible."""

    marks: tuple[int | None, ...]
    origin: tuple[int, int]
    usable: bool = True

    @property
    def size(self):
        return len(self.marks) * PAGE


class VirtualMemory(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.emu = emulate("level_zero", memory="64MiB", children=False)
        self.provider = LevelZeroVmmProvider()
        self.pieces: dict[int, Model] = {}
        self.serial = self.byte = 0

    def attempt(self, function, *arguments):
        """Call; if an ordered fault gets in the way, nothing may have changed: call again."""
        try:
            return function(*arguments)
        except UmfpyError:
            self.pieces_are_those_of_the_model()
            self.look()
            return function(*arguments)

    def pick(self, data, **wanted):
        fits = [
            ptr
            for ptr, piece in self.pieces.items()
            if all(getattr(piece, name) == value for name, value in wanted.items())
        ]
        # By position: addresses are not the same in every run.
        return fits[data.draw(st.integers(0, len(fits) - 1))] if fits else None

    @rule(nth=st.integers(1, 12))
    def a_call_will_fail(self, nth):
        self.emu.clear_faults()
        self.emu.fail("*", nth=nth, error=UNKNOWN)

    @precondition(lambda self: len(self.pieces) < 10)
    @rule(pages=st.integers(1, 6), alignment=st.sampled_from([0, PAGE, 8 * PAGE, 64 * PAGE]))
    def alloc(self, pages, alignment):
        ptr = self.attempt(self.provider.alloc, pages * PAGE, alignment)
        assert ptr % max(alignment, PAGE) == 0
        # What an ordered fault did not hit by now, it does not hit: fresh memory may hold anything.
        self.emu.clear_faults()
        self.provider.zero(ptr, pages * PAGE)
        self.serial += 1
        self.pieces[ptr] = Model((0,) * pages, (self.serial, 0))

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
        self.attempt(self.provider.split, ptr, piece.size, at * PAGE)
        serial, first = piece.origin
        self.pieces[ptr] = replace(piece, marks=piece.marks[:at])
        high = replace(piece, marks=piece.marks[at:], origin=(serial, first + at))
        self.pieces[ptr + at * PAGE] = high

    @rule(data=st.data())
    def merge(self, data):
        low = self.pick(data)
        high = low + self.pieces[low].size if low is not None else None
        if low is None or high not in self.pieces:
            return
        first, second = self.pieces[low], self.pieces[high]
        serial, start = first.origin
        size = first.size + second.size
        if second.origin != (serial, start + len(first.marks)) or first.usable is not second.usable:
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
            self.attempt(self.provider.copy, ptr + at * PAGE, bytes([self.byte]) * PAGE, PAGE)
            marks = (*piece.marks[:at], self.byte, *piece.marks[at + 1 :])
            self.pieces[ptr] = replace(piece, marks=marks)

    @rule(data=st.data())
    def decommit(self, data):
        if (ptr := self.pick(data)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.decommit, ptr, piece.size)
            self.pieces[ptr] = replace(piece, marks=(None,) * len(piece.marks), usable=False)

    @rule(data=st.data())
    def dalloc(self, data):
        if (ptr := self.pick(data)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.dalloc, ptr, piece.size)
            self.pieces[ptr] = replace(piece, usable=False)

    @rule(data=st.data())
    def commit(self, data):
        if (ptr := self.pick(data)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.commit, ptr, piece.size)
            marks = tuple(mark or 0 for mark in piece.marks)
            self.pieces[ptr] = replace(piece, marks=marks, usable=True)

    @rule(data=st.data())
    def purge(self, data):
        if (ptr := self.pick(data, usable=True)) is not None:
            piece = self.pieces[ptr]
            self.attempt(self.provider.purge_force, ptr, piece.size)
            self.pieces[ptr] = replace(piece, marks=(0,) * len(piece.marks))

    @invariant()
    def pieces_are_those_of_the_model(self):
        assert self.provider.live_count() == len(self.pieces)

    @rule()
    def look(self):
        self.emu.clear_faults()
        for ptr, piece in self.pieces.items():
            for page, mark in enumerate(piece.marks if piece.usable else ()):
                seen = bytearray(16)
                self.provider.copy(seen, ptr + page * PAGE, 8)
                self.provider.copy(memoryview(seen)[8:], ptr + (page + 1) * PAGE - 8, 8)
                assert seen == bytes([mark]) * 16

    @rule()
    def memory_is_that_of_the_model(self):
        self.emu.clear_faults()
        self.provider._leftovers.settle()
        backed = sum(mark is not None for piece in self.pieces.values() for mark in piece.marks)
        assert sum(item.size for item in self.emu.live().get("handles", [])) == backed * PAGE

    def teardown(self):
        try:
            self.look()
        finally:
            self.emu.clear_faults()
            for ptr, piece in self.pieces.items():
                self.provider.free(ptr, piece.size)
            self.provider.close()
        assert self.emu.leaks() == {}


TestVirtualMemory = VirtualMemory.TestCase
TestVirtualMemory.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
