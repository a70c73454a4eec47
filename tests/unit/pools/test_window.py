"""Where a request goes once memory is put behind some addresses: the policy alone."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator

import pytest

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.window import WORTH_IT, Free, Window, behind, choose

UNIT = 8
BASE = 1 << 20


def ranges(text: str, start: int = BASE) -> list[Free]:
    """Free ranges side by side, as in ``"S3 U2 gap1 H4"``: state and units; a gap is used."""
    states = {"S": SAFE, "H": HIDDEN, "U": UNBACKED}
    found = []
    for word in text.split():
        kind = word.rstrip("0123456789")
        size = int(word[len(kind) :]) * UNIT
        if kind in states:
            found.append(Free(start, size, states[kind]))
        start += size
    return found


def units(window: Window | None) -> tuple[int, int, int]:
    """Where a window starts and ends, and how much memory it needs, in units from the base."""
    assert window is not None
    places = window.start - BASE, window.end - BASE, window.new_bytes
    return tuple(place // UNIT for place in places)  # type: ignore[return-value]


def pick(text: str, size: int, alignment: int = 0) -> tuple[int, int, int] | None:
    """Choose among ranges, all in units."""
    window = choose(ranges(text), size * UNIT, alignment * UNIT, UNIT)
    return None if window is None else units(window)


# What is worth it.


@pytest.mark.parametrize(
    ("free", "size", "chosen"),
    [
        # The end of one range and the beginning of another, whichever brings more.
        ("S3 U9", 4, (0, 4, 1)),
        ("U9 S3", 4, (8, 12, 1)),
        ("U9 S3 U9", 4, (9, 13, 1)),
        ("S2 U9 gap1 S3 U9", 4, (12, 16, 1)),
        ("S2 U9 gap1 U9 S3", 4, (20, 24, 1)),
        # Several ranges together need less than one at the end of many.
        ("U9 S1 U1 S2 U9", 4, (9, 13, 1)),
        ("S3 U1 S3 U9", 7, (0, 7, 1)),
        # A hidden one has memory.
        ("H3 U9 gap1 S2 U9", 4, (0, 4, 1)),
        ("S1 H2 S1", 4, (0, 4, 0)),
        # On both sides, where neither has enough.
        ("U2 S3 U4", 8, (0, 8, 5)),
        ("gap1 S1 U1 S1 gap1", 3, (1, 4, 1)),
    ],
)
def test_the_least_new_memory(free: str, size: int, chosen: tuple[int, int, int]) -> None:
    assert pick(free, size) == chosen


@pytest.mark.parametrize(
    ("free", "size"),
    [("", 1), ("S3", 4), ("S3 gap1 S3", 4), ("U3", 4), ("S3 U1 gap1 U9", 10), ("H1 gap1 H1", 2)],
)
def test_none_where_nothing_is_large_enough(free: str, size: int) -> None:
    assert pick(free, size) is None


def test_a_window_that_saves_little_is_left_to_smaller_requests() -> None:
    """What takes up no more than a tenth is not worth it, as long as there is room elsewhere."""
    room = f"U{30}"

    assert pick(f"S1 U19 gap1 {room}", 11) == (21, 32, 11)
    assert pick(f"S1 U19 gap1 {room}", 10) == (0, 10, 9), "exactly a tenth is"
    assert WORTH_IT == 0.9


def test_it_is_taken_after_all_where_there_is_no_other_room() -> None:
    assert pick("S1 U19", 20) == (0, 20, 19)


def test_new_memory_goes_where_most_room_is_behind_it() -> None:
    assert pick("U20 gap1 U40 gap1 U30", 10) == (21, 31, 10)
    assert pick("S1 U20 gap1 U19", 20) == (1, 21, 20), "at the largest range of a run"


def test_where_memory_is_short_any_saving_is_worth_it() -> None:
    free = ranges("U30 gap1 S1 U19")
    size = 20 * UNIT
    assert WORTH_IT < 19 / 20

    window, scarce = (choose(free, size, 0, UNIT, scarce=scarce) for scarce in (False, True))

    assert window is not None
    assert scarce is not None
    assert (window.new_bytes, scarce.new_bytes) == (20 * UNIT, 19 * UNIT)
    assert scarce.start == window.start + 31 * UNIT


def test_room_is_what_lies_behind_the_last_part_without_memory() -> None:
    window = choose(ranges("S2 U10"), 4 * UNIT, 0, UNIT)
    fresh = choose(ranges("U10"), 4 * UNIT, 0, UNIT)
    ends = choose(ranges("U10 S2"), 4 * UNIT, 0, UNIT)
    hidden = choose(ranges("U1 H2"), 3 * UNIT, 0, UNIT)

    found = [one.room // UNIT for one in (window, fresh, ends, hidden) if one is not None]
    assert found == [8, 6, 0, 0]


# Parts.


def test_the_parts_of_a_window_are_whole_units_and_whole_hidden_ranges() -> None:
    free = [
        Free(BASE, 5, SAFE),
        Free(BASE + 5, 3, HIDDEN),
        Free(BASE + 8, 4 * UNIT, UNBACKED),
        Free(BASE + 40, 15, HIDDEN),
    ]

    window = choose(free, 48, 0, UNIT)

    assert window is not None
    assert (window.start, window.end) == (BASE, BASE + 48)
    assert window.missing == tuple(free[1:])
    assert window.hidden == [free[1], free[3]]
    assert window.without_memory == [free[2]]
    assert window.new_bytes == 4 * UNIT


def test_of_a_range_without_memory_only_the_units_that_are_needed() -> None:
    window = choose([Free(BASE, 3, SAFE), Free(BASE + 3, 9 * UNIT, UNBACKED)], 12, 0, UNIT)

    assert window is not None
    assert window.missing == (Free(BASE + 3, 2 * UNIT, UNBACKED),)
    assert window.room == 7 * UNIT


def test_units_count_from_where_the_range_begins() -> None:
    """Not from address 0: an extent may begin anywhere."""
    free = [Free(BASE + 3, 4 * UNIT, UNBACKED), Free(BASE + 3 + 4 * UNIT, 2, SAFE)]

    window = choose(free, 18, 0, UNIT)

    assert window is not None
    assert window.missing == (Free(BASE + 3 + 2 * UNIT, 2 * UNIT, UNBACKED),)


# Alignment.


@pytest.mark.parametrize(
    ("free", "size", "alignment", "chosen"),
    [
        ("gap1 S3 U20", 4, 4, (4, 8, 4)),
        ("gap1 S5 U20", 4, 4, (4, 8, 2)),
        ("gap3 U20 S2 gap1", 4, 4, (20, 24, 3)),
        ("gap3 S1 U2 S3 gap9", 4, 2, (4, 8, 2)),
        ("gap1 U30", 4, 16, (16, 20, 4)),
        ("gap1 S14", 4, 16, None),
        ("gap1 S18", 4, 16, None),
        ("gap1 S19", 4, 16, (16, 20, 0)),
        ("S3", 3, 1 << 10, (0, 3, 0)),
        ("gap1 S99", 3, 1 << 10, None),
    ],
)
def test_a_window_starts_at_a_multiple_of_the_alignment(
    free: str, size: int, alignment: int, chosen: tuple[int, int, int] | None
) -> None:
    assert pick(free, size, alignment) == chosen


def test_new_memory_afresh_is_aligned_too() -> None:
    assert pick("S1 gap2 U9 gap1 U40", 4, 8) == (16, 20, 4)


# Extents.


def test_no_window_reaches_across_extents() -> None:
    """Free memory of two extents may lie side by side; a block lies in one."""
    free = [
        Free(BASE, 4 * UNIT, SAFE),
        Free(BASE + 4 * UNIT, 3 * UNIT, SAFE),
        Free(BASE + 7 * UNIT, 2 * UNIT, UNBACKED),
    ]
    edges = {BASE, BASE + 4 * UNIT}

    assert units(choose(free, 5 * UNIT, 0, UNIT, edges)) == (4, 9, 2)
    assert choose(free, 6 * UNIT, 0, UNIT, edges) is None
    assert units(choose(free, 6 * UNIT, 0, UNIT, {BASE})) == (0, 6, 0)


def test_no_block_grows_across_extents() -> None:
    free = ranges("U4 U4")

    assert behind(free, BASE, 5 * UNIT, UNIT, {BASE, BASE + 4 * UNIT}) is None
    assert behind(free, BASE, 4 * UNIT, UNIT, {BASE, BASE + 4 * UNIT}) is not None


# Behind a block.


@pytest.mark.parametrize(
    ("free", "at", "size", "window"),
    [
        ("U9", 0, 4, (0, 4, 4)),
        ("gap3 U9", 3, 4, (3, 7, 4)),
        ("S3 U9", 3, 4, (0, 7, 4)),
        ("S3 H1 U9", 3, 4, (0, 7, 3)),
        ("H3 U9", 3, 4, (3, 7, 4)),
        ("U3 S2 U9", 3, 4, (3, 7, 2)),
        ("U2 S9", 0, 4, (0, 4, 2)),
        ("U9", 2, 4, (2, 6, 4)),
    ],
)
def test_what_a_block_needs_to_grow(
    free: str, at: int, size: int, window: tuple[int, int, int]
) -> None:
    """Usable memory before the address belongs to the window, so that nobody takes it away."""
    assert units(behind(ranges(free), BASE + at * UNIT, size * UNIT, UNIT)) == window


@pytest.mark.parametrize(
    ("free", "at", "size"),
    [("", 0, 1), ("U3", 0, 4), ("U3 gap1 U9", 0, 4), ("S9", 9, 1), ("gap1 U9", 0, 1)],
)
def test_a_block_that_cannot_grow(free: str, at: int, size: int) -> None:
    assert behind(ranges(free), BASE + at * UNIT, size * UNIT, UNIT) is None


def test_nothing_is_missing_where_all_can_be_used() -> None:
    window = behind(ranges("S9"), BASE, 4 * UNIT, UNIT)

    assert window == Window(BASE, BASE + 4 * UNIT, (), 0)


# Whatever the ranges: against the search of all places.


def layouts(count: int) -> Iterator[tuple[list[Free], set[int]]]:
    """Free ranges of any states, with gaps, and the beginnings of extents."""
    chance = random.Random(3)
    for _ in range(count):
        at, free, edges = BASE + chance.randrange(5) * UNIT, [], set()
        for _ in range(chance.randrange(1, 8)):
            state = chance.choice((SAFE, HIDDEN, UNBACKED, None, None))
            if state == UNBACKED:
                at, size = -(-at // UNIT) * UNIT, chance.randrange(1, 6) * UNIT
            else:
                size = chance.randrange(1, 3 * UNIT)
            if free and (free[-1].end, free[-1].state) == (at, state):
                edges.add(at)  # or else they were one
            if state is not None:
                free.append(Free(at, size, state))
            at += size
        chance.shuffle(free)
        yield free, edges


def cost(free: Collection[Free], edges: Collection[int], start: int, size: int) -> int | None:
    """How much memory a place needs, counted unit by unit; None if it is not free."""
    covered: set[tuple[int, int]] = set()
    for at in range(start, start + size):
        here = next((piece for piece in free if piece.start <= at < piece.end), None)
        if here is None or (at in edges and at > start):
            return None
        if here.state == UNBACKED:
            covered.add((here.start, (at - here.start) // UNIT))
    return len(covered) * UNIT


def test_every_window_is_right_and_there_is_one_if_the_request_fits() -> None:
    chance = random.Random(4)
    chosen = 0
    for free, edges in layouts(1500):
        size = chance.choice((1, chance.randrange(1, 5 * UNIT)))
        alignment = chance.choice((0, 1, 2, UNIT, 4 * UNIT))
        step = max(alignment, 1)
        places = {
            start: needed
            for start in range(BASE, BASE + 24 * UNIT, step)
            if (needed := cost(free, edges, start, size)) is not None
        }

        window = choose(free, size, alignment, UNIT, edges)

        assert (window is None) == (not places), (free, size, alignment)
        if window is None:
            continue
        chosen += 1
        assert window.end - window.start == size
        assert places[window.start] == window.new_bytes
        if alignment <= 1 and window.new_bytes <= size * WORTH_IT:
            assert window.new_bytes == min(places.values()), (free, size)
    assert chosen > 700


def test_what_is_behind_an_address_is_right() -> None:
    chance = random.Random(5)
    grown = 0
    for free, edges in layouts(1500):
        piece = chance.choice(free) if free else Free(BASE, UNIT, SAFE)
        at, size = piece.start, chance.randrange(1, 5 * UNIT)

        window = behind(free, at, size, UNIT, edges)

        needed = cost(free, edges, at, size)
        assert (window is None) == (needed is None)
        if window is not None:
            grown += 1
            assert (window.end, window.new_bytes) == (at + size, needed)
            assert window.start == at or Free(window.start, at - window.start, SAFE) in free
    assert grown > 300


def test_many_small_ranges_are_no_matter() -> None:
    """Each place is looked at once, with a search and no walk: a quadratic one would take hours."""
    count = 100_000
    free = [Free(BASE + at * UNIT, UNIT, (SAFE, UNBACKED)[at % 2]) for at in range(count)]

    window = choose(free, count * UNIT // 2, 0, UNIT)

    assert window is not None
    assert window.new_bytes == count // 4 * UNIT
