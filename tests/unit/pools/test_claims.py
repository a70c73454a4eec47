"""Ranges that one thread has to itself, and who may have them afterwards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.provider import FakeProvider
from umfpy.core.extents import HIDDEN, LEAVING, RETIRING, SAFE, ExtentMap
from umfpy.pools.claims import Claim

GRANULE = 512
SIZE = 64 * GRANULE


@pytest.fixture
def provider() -> FakeProvider:
    return FakeProvider(granule=GRANULE)


@pytest.fixture
def space(provider: FakeProvider) -> Iterator[ExtentMap]:
    made = ExtentMap(GRANULE, provider, ordered=True)
    made.add(provider.alloc(SIZE), SIZE, provider)
    yield made
    made.check("full")


def freed_on_one_stream(space: ExtentMap) -> int:
    """Return where memory lies that the only stream so far has freed, and may still be using."""
    start = space.allocate(8 * GRANULE, 0, 1)
    assert start is not None
    space.free(start)
    return start


def state_at(space: ExtentMap, start: int) -> int:
    (state,) = {tag for at, span, _, tag in space.blocks() if at <= start < at + span}
    return state


def test_what_is_claimed_is_nobodys(space):
    start = freed_on_one_stream(space)
    with Claim.take(space, start, SIZE, SAFE):
        assert state_at(space, start) == LEAVING
        assert space.allocate(GRANULE, 0, 1) is None
    assert state_at(space, start) == SAFE


def test_a_range_that_is_not_all_free_cannot_be_claimed(space):
    start = space.allocate(GRANULE, 0, 1)
    assert Claim.take(space, start, SIZE, SAFE) is None
    assert Claim.take(space, start + GRANULE, SIZE - GRANULE, HIDDEN) is None


def test_a_second_stream_does_not_get_what_nobody_waited_for(space):
    start = freed_on_one_stream(space)
    with Claim.take(space, start, SIZE, SAFE):
        assert space.allocate(GRANULE, 0, 2) is None  # the second stream is known from now on
    assert state_at(space, start) == RETIRING
    assert space.allocate(GRANULE, 0, 2) is None
    space.retired()
    assert space.allocate(GRANULE, 0, 2) == start


def test_after_a_wait_it_is_everybodys(space):
    start = freed_on_one_stream(space)
    with Claim.take(space, start, SIZE, SAFE) as claim:
        assert space.allocate(GRANULE, 0, 2) is None
        claim.waited()
    assert state_at(space, start) == SAFE


def test_an_extent_that_comes_back_without_a_wait_is_kept_from_a_second_stream(space):
    start = freed_on_one_stream(space)
    (extent,) = space.free_extents()
    assert space.remove(extent)
    assert space.allocate(GRANULE, 0, 2) is None
    space.restore(extent, waited=False)
    assert state_at(space, start) == RETIRING


def test_peaks_are_told_as_they_are_reset(space):
    start = space.allocate(8 * GRANULE)
    space.free(start)
    assert space.reset_peaks()["peak_used"] == 8 * GRANULE
    assert space.reset_peaks()["peak_used"] == 0
