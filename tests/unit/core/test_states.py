"""Free memory that is set apart: hidden, without backing, or in the hands of a driver."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import pytest

from tests.fakes.provider import FakeProvider
from tests.fakes.structs import Structures
from umfpy import InvalidArgument
from umfpy.core.extents import (
    COMING,
    HIDDEN,
    LEAVING,
    RETIRING,
    SAFE,
    UNBACKED,
    Extent,
    ExtentMap,
)

GRANULE = 512
SIZE = 64 * GRANULE
APART = [HIDDEN, UNBACKED, LEAVING, COMING]
MOVABLE = [SAFE, *APART]
NAMES = {SAFE: "safe", HIDDEN: "hidden", UNBACKED: "unbacked", LEAVING: "leaving", COMING: "coming"}


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider(granule=GRANULE)


@pytest.fixture
def space(provider: FakeProvider) -> Iterator[ExtentMap]:
    made = ExtentMap(GRANULE, provider)
    yield made
    made.check("full")


@pytest.fixture
def base(space: ExtentMap, provider: FakeProvider) -> int:
    """One extent of `SIZE` bytes."""
    start = provider.alloc(SIZE)
    space.add(start, SIZE, provider)
    return start


def states_of(space: ExtentMap) -> list[tuple[int, int]]:
    """(granules, state) of each free block, by address."""
    return [(span // GRANULE, tag) for _, span, used, tag in space.blocks() if not used]


def wait(space: ExtentMap) -> None:
    """As a pool does for the device."""
    space.retire()
    space.retired()


def with_two_streams(provider: FakeProvider) -> tuple[ExtentMap, int]:
    """A map whose memory two streams have used, after a wait for the device; and its base."""
    space = ExtentMap(GRANULE, provider, ordered=True)
    base = provider.alloc(SIZE)
    space.add(base, SIZE, provider)
    for stream in (1, 2):
        assert space.allocate(0, 0, stream) is None or stream == 1  # now all is the first one's
        wait(space)
    for start, _, used, _ in space.blocks():
        if used:
            space.free(start)
    wait(space)
    return space, base


def test_the_states_are_numbers_of_their_own() -> None:
    assert len({SAFE, RETIRING, *APART}) == 6


@pytest.mark.parametrize("state", APART, ids=NAMES.get)
def test_memory_set_apart_is_given_to_nobody(space: ExtentMap, base: int, state: int) -> None:
    # given
    assert space.retag(base, SIZE - GRANULE, SAFE, state)

    # when
    last = space.allocate(GRANULE)

    # then
    assert last == base + SIZE - GRANULE
    assert space.allocate(1) is None
    assert space.counters()["largest_free"] == 0
    assert space.retag(base, SIZE - GRANULE, state, SAFE)
    assert space.allocate(SIZE - GRANULE) == base


@pytest.mark.parametrize(
    ("old", "new"), list(permutations(MOVABLE, 2)), ids=lambda state: NAMES[state]
)
def test_a_range_goes_from_each_state_to_each_other(
    space: ExtentMap, base: int, old: int, new: int
) -> None:
    # given
    if old != SAFE:
        assert space.retag(base, SIZE, SAFE, old)

    # when, then
    assert space.retag(base + 8 * GRANULE, 4 * GRANULE, old, new)
    assert states_of(space) == [(8, old), (4, new), (52, old)]
    space.check("full")
    assert space.retag(base + 8 * GRANULE, 4 * GRANULE, new, old)
    assert states_of(space) == [(64, old)]


def test_a_range_joins_its_neighbours_of_the_new_state(space: ExtentMap, base: int) -> None:
    # given
    for first in (0, 2):
        assert space.retag(base + first * GRANULE, GRANULE, SAFE, HIDDEN)

    # when
    assert space.retag(base + GRANULE, GRANULE, SAFE, HIDDEN)

    # then
    assert states_of(space) == [(3, HIDDEN), (61, SAFE)]


def test_memory_that_is_freed_does_not_join_what_is_set_apart(space: ExtentMap, base: int) -> None:
    # given
    middle = space.allocate(4 * GRANULE)
    assert middle == base
    assert space.retag(base + 4 * GRANULE, 4 * GRANULE, SAFE, HIDDEN)

    # when
    space.free(middle)

    # then
    assert states_of(space) == [(4, SAFE), (4, HIDDEN), (56, SAFE)]


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 17), (15, 2), (16, 1), (31, 1), (20, 20), (63, 2), (63, 1 << 40)],
)
def test_what_is_not_one_free_block_of_the_state_is_left_alone(
    space: ExtentMap, base: int, first: int, count: int
) -> None:
    # given: 16 safe, 16 used, 31 safe, 1 hidden granules
    assert space.allocate(16 * GRANULE) == base
    assert space.allocate(16 * GRANULE) == base + 16 * GRANULE
    space.free(base)
    assert space.retag(base + 63 * GRANULE, GRANULE, SAFE, HIDDEN)
    before = space.blocks(), space.counters()

    # when
    moved = space.retag(base + first * GRANULE, count * GRANULE, SAFE, UNBACKED)

    # then
    assert not moved
    assert (space.blocks(), space.counters()) == before


def test_a_range_outside_the_map_is_not_free_in_it(
    space: ExtentMap, base: int, provider: FakeProvider
) -> None:
    other = ExtentMap(GRANULE, provider)
    start = provider.alloc(SIZE)
    other.add(start, SIZE, provider)
    for outside in (0, start, base + SIZE, (1 << 64) - GRANULE):
        assert not space.retag(outside, GRANULE, SAFE, HIDDEN)


def test_the_block_that_was_freed_last_can_be_set_apart(space: ExtentMap, base: int) -> None:
    # given
    start = space.allocate(SIZE)
    space.free(start)

    # when, then
    assert space.retag(base, SIZE, SAFE, HIDDEN)
    assert space.allocate(SIZE) is None


def test_it_is_found_far_from_any_used_block(space: ExtentMap, provider: FakeProvider) -> None:
    # given: many regions, one block used in the middle of them
    size = GRANULE << 20
    base = provider.alloc(size)
    space.add(base, size, provider)
    low = space.allocate(size // 2)
    middle = space.allocate(GRANULE)
    space.free(low)

    # when, then
    for granule in (0, 1 << 18, (1 << 19) - 1, (1 << 19) + 1, (1 << 20) - 1):
        start = base + granule * GRANULE
        assert space.retag(start, GRANULE, SAFE, UNBACKED)
        space.check("full")
    assert not space.retag(middle, GRANULE, SAFE, UNBACKED)
    assert space.counters()["unbacked"] == 5 * GRANULE


@pytest.mark.parametrize(
    ("start", "size"), [(1, GRANULE), (0, 0), (0, 1), (GRANULE // 2, GRANULE), (0, GRANULE + 1)]
)
def test_a_range_is_whole_granules(space: ExtentMap, base: int, start: int, size: int) -> None:
    with pytest.raises(InvalidArgument, match="whole number of granules of 512"):
        space.retag(base + start, size, SAFE, HIDDEN)


@pytest.mark.parametrize(
    ("old", "new"), [(SAFE, SAFE), (HIDDEN, HIDDEN), (SAFE, RETIRING), (RETIRING, SAFE)]
)
def test_pairs_of_states_that_are_none(space: ExtentMap, base: int, old: int, new: int) -> None:
    with pytest.raises(InvalidArgument, match="memory cannot go from"):
        space.retag(base, SIZE, old, new)


@pytest.mark.parametrize("state", [-1, 6, 4095, "SAFE", None, 1.0])
def test_numbers_that_are_no_state(space: ExtentMap, base: int, state: object) -> None:
    for call in (
        lambda: space.retag(base, SIZE, state, SAFE),
        lambda: space.retag(base, SIZE, SAFE, state),
        lambda: space.free_ranges(state),
    ):
        with pytest.raises(InvalidArgument, match="a state is one of SAFE"):
            call()


# Counters.


@pytest.mark.parametrize(
    ("state", "reserved", "unbacked", "hidden"),
    [
        (SAFE, 64, 0, 0),
        (HIDDEN, 64, 0, 10),
        (UNBACKED, 54, 10, 0),
        (LEAVING, 64, 0, 0),
        (COMING, 54, 10, 0),
    ],
    ids=lambda value: str(value),
)
def test_only_memory_that_is_there_is_reserved(
    space: ExtentMap, base: int, state: int, reserved: int, unbacked: int, hidden: int
) -> None:
    if state != SAFE:
        assert space.retag(base, 10 * GRANULE, SAFE, state)
    counters = space.counters()
    assert counters["reserved"] == reserved * GRANULE
    assert counters["unbacked"] == unbacked * GRANULE
    assert counters["hidden"] == hidden * GRANULE
    assert counters["peak_reserved"] == SIZE


def test_the_peak_follows_memory_that_comes(space: ExtentMap, provider: FakeProvider) -> None:
    # given
    base = provider.alloc(SIZE)
    space.add(base, SIZE, provider, backed=False)
    assert space.counters()["peak_reserved"] == 0

    # when
    assert space.retag(base, 8 * GRANULE, UNBACKED, COMING)
    assert space.counters()["peak_reserved"] == 0
    assert space.retag(base, 8 * GRANULE, COMING, SAFE)
    assert space.retag(base, 4 * GRANULE, SAFE, UNBACKED)

    # then
    counters = space.counters()
    assert counters["peak_reserved"] == 8 * GRANULE
    assert counters["reserved"] == 4 * GRANULE


# Ranges.


def test_free_ranges_are_those_of_a_state_and_a_size(space: ExtentMap, base: int) -> None:
    # given: 4 safe, 2 hidden, 8 safe, 1 hidden, 49 safe granules
    assert space.retag(base + 4 * GRANULE, 2 * GRANULE, SAFE, HIDDEN)
    assert space.retag(base + 14 * GRANULE, GRANULE, SAFE, HIDDEN)

    def ranges(state: int, least: int = 1) -> set[tuple[int, int]]:
        found = space.free_ranges(state, least)
        return {((start - base) // GRANULE, size // GRANULE) for start, size in found}

    # when, then
    assert ranges(HIDDEN) == {(4, 2), (14, 1)}
    assert ranges(HIDDEN, GRANULE + 1) == {(4, 2)}
    assert ranges(HIDDEN, 2 * GRANULE + 1) == set()
    assert ranges(SAFE) == {(0, 4), (6, 8), (15, 49)}
    assert ranges(SAFE, 0) == {(0, 4), (6, 8), (15, 49)}
    assert ranges(SAFE, 5 * GRANULE) == {(6, 8), (15, 49)}
    # Sizes of one bin that differ: the bin is walked, the smaller one is not in the answer.
    assert ranges(SAFE, 49 * GRANULE) == {(15, 49)}
    assert ranges(SAFE, 49 * GRANULE + 1) == set()
    assert ranges(SAFE, (1 << 64) - 1) == set()
    assert ranges(UNBACKED) == set()
    assert ranges(RETIRING) == set()


def test_free_ranges_hold_what_was_freed_last(space: ExtentMap, base: int) -> None:
    start = space.allocate(SIZE)
    space.free(start)
    assert space.free_ranges() == [(base, SIZE)]


# Extents.


def test_an_extent_may_come_without_memory(space: ExtentMap, provider: FakeProvider) -> None:
    # given
    base = provider.alloc(SIZE)

    # when
    space.add(base, SIZE, provider, backed=False)

    # then
    assert states_of(space) == [(64, UNBACKED)]
    assert space.allocate(1) is None
    assert space.counters()["reserved"] == 0
    assert space.counters()["unbacked"] == SIZE


@pytest.mark.parametrize(
    ("state", "reserved"), [(SAFE, SIZE), (HIDDEN, SIZE), (UNBACKED, 0)], ids=str
)
def test_an_extent_of_one_state_can_go_and_come_back(
    space: ExtentMap, base: int, state: int, reserved: int
) -> None:
    # given
    if state != SAFE:
        assert space.retag(base, SIZE, SAFE, state)
    (extent,) = space.free_extents()
    space.describe(base)  # so that a table of addresses is no news
    before = space.blocks(), space.counters()

    # when
    assert space.remove(extent)

    # then
    counters = space.counters()
    assert (counters["reserved"], counters["unbacked"], counters["hidden"]) == (0, 0, 0)
    assert extent.backed == (state != UNBACKED)
    space.restore(extent)
    space.describe(base)
    assert (space.blocks(), space.counters()) == before
    assert space.counters()["reserved"] == reserved
    assert space.free_extents() == [extent]


def test_extents_with_and_without_memory_are_told_apart(
    space: ExtentMap, base: int, provider: FakeProvider
) -> None:
    # given
    hollow = space.add(provider.alloc(SIZE), SIZE, provider, backed=False)
    (full,) = (extent for extent in space.extents.values() if extent is not hollow)

    # when, then
    assert set(space.free_extents()) == {full, hollow}
    assert space.free_extents(backed=True) == [full]
    assert space.free_extents(backed=False) == [hollow]


@pytest.mark.parametrize("state", [LEAVING, COMING], ids=NAMES.get)
def test_an_extent_that_a_driver_is_at_stays(space: ExtentMap, base: int, state: int) -> None:
    # given
    (extent,) = space.free_extents()

    # when
    assert space.retag(base, SIZE, SAFE, state)

    # then
    assert space.free_extents() == []
    assert not space.remove(extent)
    assert space.retag(base, SIZE, state, UNBACKED)
    assert space.remove(extent)


def test_an_extent_of_two_states_is_not_wholly_free(space: ExtentMap, base: int) -> None:
    (extent,) = space.free_extents()
    assert space.retag(base, GRANULE, SAFE, HIDDEN)
    assert space.free_extents() == []
    assert not space.remove(extent)


def test_only_what_was_removed_can_be_restored(
    space: ExtentMap, base: int, provider: FakeProvider
) -> None:
    # given
    (extent,) = space.free_extents()
    other = ExtentMap(GRANULE, provider)

    # when, then
    with pytest.raises(InvalidArgument, match="was not removed"):
        space.restore(extent)
    assert space.remove(extent)
    with pytest.raises(InvalidArgument, match="was not removed"):
        other.restore(extent)
    space.restore(extent)
    assert isinstance(extent, Extent)


# Streams.


def test_waiting_for_streams_leaves_states_alone(provider: FakeProvider) -> None:
    # given: two streams, a part hidden and a part in the hands of a driver
    space, base = with_two_streams(provider)
    assert space.retag(base, 4 * GRANULE, SAFE, HIDDEN)
    assert space.retag(base + 4 * GRANULE, 4 * GRANULE, SAFE, LEAVING)
    before = space.blocks()

    # when
    space.retire(everything=True)
    retiring = space.free_ranges(RETIRING)
    space.retired()

    # then
    assert retiring == [(base + 8 * GRANULE, SIZE - 8 * GRANULE)]
    assert space.blocks() == before
    space.check("full")


def test_what_another_stream_freed_is_not_everybodys(provider: FakeProvider) -> None:
    # given
    space, base = with_two_streams(provider)
    blocks = [space.allocate(SIZE // 2, 0, stream) for stream in (1, 2)]
    for block in blocks:
        space.free(block)

    # when, then
    assert not space.retag(base, GRANULE, SAFE, HIDDEN)
    space.retire()
    assert not space.retag(base, GRANULE, SAFE, HIDDEN)
    space.retired()
    assert space.retag(base, GRANULE, SAFE, HIDDEN)


def test_every_stream_has_a_tag_of_its_own_beside_the_states(provider: FakeProvider) -> None:
    # given
    space, base = with_two_streams(provider)
    assert space.retag(base, GRANULE, SAFE, UNBACKED)

    # when
    tags = []
    for stream in range(3, 20):
        space.free(space.allocate(GRANULE, 0, stream))
        tags += {tag for _, _, used, tag in space.blocks() if not used} - {SAFE, UNBACKED}
        wait(space)

    # then
    assert len(tags) == len(set(tags) - {RETIRING, *APART}) == 17
    assert space.free_ranges(UNBACKED) == [(base, GRANULE)]
    space.check("full")


def test_without_host_memory_nothing_changes(space: ExtentMap, base: int) -> None:
    # given: an array of blocks that is full, and as large as it can be
    space.describe(base)
    before = space.blocks(), space.counters()
    structures = Structures(space)
    for field in ("blocks_used", "blocks_capacity"):
        structures.poke(structures.map, field, 0xF0000000)

    # when
    try:
        with pytest.raises(MemoryError, match="no host memory for the pool's metadata"):
            space.retag(base, GRANULE, SAFE, HIDDEN)
    finally:
        structures.restore()

    # then
    assert (space.blocks(), space.counters()) == before
