"""What providers note of addresses: the right answers, and no look at more than it takes."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umfpy.errors import InvalidArgument
from umfpy.providers.host.address_map import AddressMap
from umfpy.providers.host.pieces import Piece, Pieces
from umfpy.providers.host.range_set import RangeSet

LIMIT = 24

ranges = st.tuples(st.integers(0, LIMIT), st.integers(0, LIMIT)).map(sorted)


@given(st.lists(st.tuples(st.booleans(), ranges), max_size=30), ranges)
def test_a_range_set_is_a_set(changes, asked):
    found, model = RangeSet(), set()
    for entered, (start, end) in changes:
        if start == end:
            continue
        if entered:
            found.add(start, end)
            model |= set(range(start, end))
        else:
            gone = found.discard(start, end)
            assert [n for first, last in gone for n in range(first, last)] == sorted(
                model & set(range(start, end))
            )
            model -= set(range(start, end))
    start, end = asked
    inside = [n for first, last in found.within(start, end) for n in range(first, last)]
    outside = [n for first, last in found.without(start, end) for n in range(first, last)]
    assert inside == sorted(model & set(range(start, end)))
    assert outside == sorted(set(range(start, end)) - model)
    assert found.covered(start, end) == len(inside)
    # Neighbours are joined, and nothing is empty.
    edges = [edge for pair in found.within(-1, LIMIT + 1) for edge in pair]
    assert edges == sorted(set(edges))
    assert len(found) == len(edges) // 2


@given(st.dictionaries(st.integers(0, LIMIT), st.text(max_size=1)), st.sets(st.integers(0, LIMIT)))
def test_an_address_map_is_a_map_in_order(entries, gone):
    found = AddressMap()
    for start, value in entries.items():
        found.put(start, "old")
        found.put(start, value)
    for start in gone & set(entries):
        assert found.pop(start) == entries.pop(start)
        with pytest.raises(KeyError):
            found.pop(start)
    assert found.items() == sorted(entries.items())
    assert len(found) == len(entries)
    for at in range(LIMIT + 2):
        assert found.get(at) == entries.get(at)
        assert (at in found) == (at in entries)
        below = [pair for pair in found.items() if pair[0] < at]
        assert found.last_before(at) == (below[-1] if below else None)
        assert found.between(at, at + 3) == [v for k, v in found.items() if at <= k < at + 3]


class Counted(list):
    """Counts how often one looks into it."""

    looks = 0

    def __getitem__(self, at):
        self.looks += 1
        return super().__getitem__(at)

    def __iter__(self):
        raise AssertionError("a look at every one")


def test_no_call_looks_at_all_pieces():
    pieces = Pieces()
    count = 1 << 12
    for at in range(count):
        pieces.add(at * 100, Piece(100, at * 100, usable=at % 2 == 0))
    for each in (pieces._by_ptr, pieces._unusable):
        each._starts = Counted(each._starts)
    rng = random.Random(1)
    calls = 0
    for at in rng.sample(range(count // 4), 50):
        base = at * 400
        assert pieces.find(base + 150) == (base + 100, Piece(100, base + 100, usable=False))
        pieces.check_usable(base, 100)
        pieces.check_usable(base + 200, 100)
        with pytest.raises(InvalidArgument, match="not accessible"):
            pieces.check_usable(base + 50, 51)
        with pytest.raises(InvalidArgument, match="inside the piece"), pieces.released(base + 1, 9):
            pass
        with pieces.changed(base + 100, 100, usable=True):
            pass
        pieces.merge(base, base + 100, 200)
        pieces.split(base, 200, 100, 1)
        calls += 8
    looks = pieces._by_ptr._starts.looks + pieces._unusable._starts.looks
    assert looks < calls * 4 * count.bit_length()
    assert pieces.find(count * 100) is None


def test_a_range_that_touches_nothing_unusable():
    pieces = Pieces()
    pieces.add(100, Piece(50, 100, usable=False))
    pieces.check_usable(0, 100)
    pieces.check_usable(150, 100)
    pieces.check_usable(100, 0)
    for ptr, size in ((99, 2), (149, 1), (120, 0), (0, 1000)):
        with pytest.raises(InvalidArgument, match="the 50 bytes at 0x64"):
            pieces.check_usable(ptr, size)
