"""Free ranges, against a set of units."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from umfpy.providers.host.ranges import FreeRanges

LENGTH = 64


@given(st.lists(st.tuples(st.integers(1, 16), st.sampled_from([1, 2, 8]), st.booleans())))
def test_taken_ranges_are_disjoint_aligned_and_first(steps):
    ranges, free, taken = FreeRanges(), set(range(LENGTH)), []
    ranges.add(0, LENGTH)
    for size, alignment, give_back in steps:
        if give_back and taken:
            start, end = taken.pop(size % len(taken))
            ranges.add(start, end)
            free |= set(range(start, end))
        fits = [at for at in range(0, LENGTH, alignment) if free.issuperset(range(at, at + size))]
        start = ranges.take(size, alignment)
        assert start == (fits[0] if fits else None)
        if start is not None:
            free -= set(range(start, start + size))
            taken.append((start, start + size))
        assert ranges.total == len(free)
    for start, end in taken:
        ranges.add(start, end)
    assert ranges.take(LENGTH) == 0


def test_neighbours_join_in_any_order():
    for order in ([0, 1, 2], [0, 2, 1], [2, 0, 1], [1, 0, 2]):
        ranges = FreeRanges()
        for index in order:
            ranges.add(index * 4, index * 4 + 4)
        assert ranges.largest == 12
        assert ranges.take_last(12) == 0
        assert ranges.total == 0


def test_take_last_of_a_full_line_is_its_end():
    ranges = FreeRanges()
    assert ranges.take_last(8) == 8
    ranges.add(0, 4)
    assert ranges.take_last(8) == 8
    assert ranges.largest == 4
