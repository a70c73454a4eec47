"""Where a request goes: to the closest fit, or from a size on to the lowest address."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.provider import FakeProvider
from umfpy.core.extents import HIDDEN, SAFE, UNBACKED, ExtentMap

GRANULE = 512


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider(granule=GRANULE)


@pytest.fixture
def space(provider: FakeProvider) -> Iterator[ExtentMap]:
    """One extent of 100 granules; requests of 4 granules and more go to the lowest address."""
    made = ExtentMap(GRANULE, provider, low_from=4 * GRANULE)
    made.add(provider.alloc(100 * GRANULE), 100 * GRANULE, provider)
    yield made
    made.check("full")


def holes(space: ExtentMap, *granules: int) -> list[int]:
    """Leave free holes of these sizes, by address, with a used granule behind each."""
    starts = []
    for size in granules:
        start = space.allocate(size * GRANULE)
        assert start is not None
        starts.append(start)
        space.allocate(GRANULE)
    for start in starts:
        space.free(start)
    return starts


def test_a_large_request_goes_to_the_lowest_hole_that_holds_it(space):
    low, _, _ = holes(space, 20, 8, 6)
    assert space.allocate(5 * GRANULE) == low


def test_a_hole_that_is_too_small_is_passed_over(space):
    _, second, _ = holes(space, 5, 9, 7)
    assert space.allocate(6 * GRANULE) == second


def test_a_small_request_goes_to_the_closest_fit(space):
    _, _, closest = holes(space, 20, 8, 3)
    assert space.allocate(3 * GRANULE) == closest


def test_alignment_counts_for_what_fits(space):
    first, second = holes(space, 5, 40)
    alignment = 16 * GRANULE
    found = space.allocate(4 * GRANULE, alignment)
    assert found % alignment == 0
    assert found >= (second if first % alignment else first)


def test_an_extent_in_several_states_goes_as_a_whole_if_that_is_asked(space):
    (extent,) = space.extents.values()
    base = extent.base
    assert space.retag(base, 8 * GRANULE, SAFE, HIDDEN)
    assert space.retag(base + 8 * GRANULE, 8 * GRANULE, SAFE, UNBACKED)
    assert not space.remove(extent)
    space.check("full")
    assert space.remove(extent, mixed=True)
    now = space.counters()
    assert (now["reserved"], now["hidden"], now["unbacked"]) == (0, 0, 0)


def test_a_used_block_keeps_an_extent_in_several_states(space):
    (extent,) = space.extents.values()
    assert space.retag(extent.base, 8 * GRANULE, SAFE, HIDDEN)
    start = space.allocate(GRANULE)
    before = space.counters()
    assert not space.remove(extent, mixed=True)
    assert space.counters() == before
    space.free(start)
    assert space.remove(extent, mixed=True)
