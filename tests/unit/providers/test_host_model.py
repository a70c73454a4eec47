"""Random lives of pieces, against a model of their bytes."""

from __future__ import annotations

import os
import tempfile

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from umfpy.errors import InvalidArgument
from umfpy.providers.host import FileProvider, HostProvider

PAGE = os.sysconf("SC_PAGE_SIZE")


class Pieces(RuleBasedStateMachine):
    """The model: for each piece one byte a page, or None where it is decommitted."""

    def __init__(self):
        super().__init__()
        self.provider = self.make()
        self.pieces: dict[int, list[int] | None] = {}
        self.counts: dict[int, int] = {}
        self.next_byte = 1

    def make(self):
        raise NotImplementedError

    def pick(self, data, committed=None):
        fits = [
            ptr
            for ptr, marks in self.pieces.items()
            if committed is None or (marks is not None) is committed
        ]
        return data.draw(st.sampled_from(sorted(fits))) if fits else None

    @property
    def sizes(self):
        return {ptr: self.counts[ptr] * PAGE for ptr in self.pieces}

    @precondition(lambda self: len(self.pieces) < 12)
    @rule(pages=st.integers(1, 6), alignment=st.sampled_from([0, 1, PAGE, 8 * PAGE]))
    def alloc(self, pages, alignment):
        ptr = self.provider.alloc(pages * PAGE, alignment)
        assert ptr % max(alignment, PAGE) == 0
        self.pieces[ptr], self.counts[ptr] = [0] * pages, pages

    @rule(data=st.data())
    def free(self, data):
        if (ptr := self.pick(data)) is not None:
            self.provider.free(ptr, self.sizes[ptr])
            del self.pieces[ptr], self.counts[ptr]

    @rule(data=st.data())
    def split(self, data):
        ptr = self.pick(data)
        if ptr is None or self.counts[ptr] < 2:
            return
        pages = self.counts[ptr]
        at = data.draw(st.integers(1, pages - 1))
        self.provider.split(ptr, pages * PAGE, at * PAGE)
        high, marks = ptr + at * PAGE, self.pieces[ptr]
        self.pieces[ptr], self.counts[ptr] = marks and marks[:at], at
        self.pieces[high], self.counts[high] = marks and marks[at:], pages - at

    @rule(data=st.data())
    def merge(self, data):
        low = self.pick(data)
        if low is None:
            return
        high = low + self.sizes[low]
        if high not in self.pieces:
            return
        marks = self.pieces[low], self.pieces[high]
        pages = self.counts[low] + self.counts[high]
        if not self.may_merge(low, high):
            with pytest.raises(InvalidArgument):
                self.provider.merge(low, high, pages * PAGE)
            return
        self.provider.merge(low, high, pages * PAGE)
        self.counts[low] = pages
        self.pieces[low] = None if marks[0] is None else marks[0] + marks[1]
        del self.pieces[high], self.counts[high]

    def may_merge(self, low, high):
        """Neighbours of one state; in a file also neighbours there."""
        if (self.pieces[low] is None) is not (self.pieces[high] is None):
            return False
        offsets = [self.provider.properties(ptr)["offset"] for ptr in (low, high)]
        return offsets[0] is None or offsets[0] + self.sizes[low] == offsets[1]

    @rule(data=st.data())
    def write(self, data):
        if (ptr := self.pick(data, committed=True)) is not None:
            at = data.draw(st.integers(0, self.counts[ptr] - 1))
            self.provider.copy(ptr + at * PAGE, bytes([self.next_byte]) * PAGE, PAGE)
            self.pieces[ptr][at] = self.next_byte
            self.next_byte = self.next_byte % 255 + 1

    @rule(data=st.data())
    def decommit(self, data):
        if (ptr := self.pick(data)) is not None:
            self.provider.decommit(ptr, self.sizes[ptr])
            self.pieces[ptr] = None

    @rule(data=st.data())
    def commit(self, data):
        if (ptr := self.pick(data)) is not None:
            self.provider.commit(ptr, self.sizes[ptr])
            if self.pieces[ptr] is None:
                self.pieces[ptr] = [0] * self.counts[ptr]

    @rule(data=st.data())
    def purge(self, data):
        if (ptr := self.pick(data, committed=True)) is not None:
            self.provider.purge_force(ptr, self.sizes[ptr])
            self.pieces[ptr] = [0] * self.counts[ptr]

    @invariant()
    def bytes_are_those_of_the_model(self):
        assert self.provider.live_count() == len(self.pieces)
        for ptr, marks in self.pieces.items():
            if marks is None:
                continue
            seen = bytearray(len(marks) * PAGE)
            self.provider.copy(seen, ptr, len(seen))
            assert seen == b"".join(bytes([mark]) * PAGE for mark in marks)

    def teardown(self):
        for ptr, size in self.sizes.items():
            self.provider.free(ptr, size)
        self.provider.close()


class Private(Pieces):
    """Private memory goes elsewhere, too; what has memory is what the model says."""

    def make(self):
        return HostProvider()

    @precondition(lambda self: len(self.pieces) < 12)
    @rule(pages=st.integers(1, 6))
    def reserve(self, pages):
        ptr = self.provider.reserve(pages * PAGE)
        self.pieces[ptr], self.counts[ptr] = None, pages

    @rule(data=st.data())
    def remap(self, data):
        to = self.pick(data, committed=False)
        sources = [ptr for ptr, marks in self.pieces.items() if marks is not None]
        if to is None or not sources:
            return
        sources = data.draw(st.lists(st.sampled_from(sorted(sources)), unique=True))
        ranges = [(ptr, self.sizes[ptr]) for ptr in sources]
        if sum(size for _, size in ranges) != self.sizes[to]:
            with pytest.raises(InvalidArgument, match="are wanted"):
                self.provider.remap(ranges, to, self.sizes[to])
            return
        self.provider.remap(ranges, to, self.sizes[to])
        self.provider.zero(to, self.sizes[to])
        self.pieces.update(dict.fromkeys(sources))
        self.pieces[to] = [0] * self.counts[to]

    @invariant()
    def chunks_are_what_has_memory(self):
        for ptr, marks in self.pieces.items():
            found = self.provider.chunks(ptr, self.sizes[ptr])
            assert sum(chunk.size for chunk in found) == (self.sizes[ptr] if marks else 0)


class Shared(Pieces):
    def make(self):
        return HostProvider(shared=True)


class File(Pieces):
    def make(self):
        self.folder = tempfile.TemporaryDirectory()
        return FileProvider(f"{self.folder.name}/memory", keep=False)

    def teardown(self):
        super().teardown()
        self.folder.cleanup()


SETTINGS = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestPrivate, TestShared, TestFile = Private.TestCase, Shared.TestCase, File.TestCase
TestPrivate.settings = TestShared.settings = TestFile.settings = SETTINGS
