"""Chunks that a pool can do without where they are: the policy alone."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from tests.fakes.provider import FakeProvider
from umfpy.pools.spare import divide, spare_chunks
from umfpy.pools.window import Window
from umfpy.provider import ChunkInfo

UNIT = 1 << 12
BASE = 1 << 30


class Chunked(FakeProvider):
    """Has the chunks that it is told of, by (start, units), those of `exported` shared."""

    def __init__(self, *chunks: tuple[int, int], exported: Sequence[int] = ()) -> None:
        super().__init__(unit=UNIT)
        self.all = [
            ChunkInfo(BASE + start * UNIT, size * UNIT, start in exported) for start, size in chunks
        ]

    def chunks(self, ptr: int, size: int) -> list[ChunkInfo]:
        assert (ptr | size) % UNIT == 0, "asked for whole units"
        assert size > 0
        return [one for one in self.all if ptr <= one.ptr and one.ptr + one.size <= ptr + size]


def window(start: float, end: float) -> Window:
    """A window, in units from the base."""
    return Window(BASE + int(start * UNIT), BASE + int(end * UNIT), (), 0)


NOWHERE = Window(0, 0, (), 0)


def free(*ranges: tuple[float, float]) -> list[tuple[int, int]]:
    """Free ranges as a map has them, from (start, units)."""
    return [(BASE + int(start * UNIT), int(size * UNIT)) for start, size in ranges]


def starts(chunks: Sequence[ChunkInfo]) -> list[int]:
    """Where chunks start, in units from the base."""
    return [(chunk.ptr - BASE) // UNIT for chunk in chunks]


def test_the_largest_come_first_and_of_equal_ones_the_highest() -> None:
    provider = Chunked((0, 1), (1, 4), (8, 1), (9, 2), (16, 2), (20, 4))

    found = spare_chunks(provider, free((0, 5), (8, 3), (16, 2), (20, 4)), NOWHERE)

    assert starts(found) == [20, 1, 16, 9, 8, 0]


def test_only_chunks_that_are_free_as_a_whole() -> None:
    provider = Chunked((0, 4), (4, 4), (8, 4), (12, 4))

    assert starts(spare_chunks(provider, free((1, 8.5)), NOWHERE)) == [4]
    assert starts(spare_chunks(provider, free((3.5, 4.4)), NOWHERE)) == []
    assert starts(spare_chunks(provider, free((3.5, 8.5)), NOWHERE)) == [8, 4]


@pytest.mark.parametrize("size", [0.25, 1, 1.75])
def test_free_memory_without_a_whole_unit_is_not_asked_about(size: float) -> None:
    """Such as begins inside a unit and ends in the next."""
    provider = Chunked((0, 1), (1, 1))

    assert spare_chunks(provider, free((0.125, size)), NOWHERE) == []


def test_what_others_may_have_open_stays() -> None:
    provider = Chunked((0, 1), (1, 1), (2, 1), exported=[1])

    assert starts(spare_chunks(provider, free((0, 3)), NOWHERE)) == [2, 0]


@pytest.mark.parametrize(
    ("place", "left"),
    [
        ((0, 8), []),
        ((2, 6), [6, 7, 0, 1]),
        ((2.5, 5.5), [6, 7, 0, 1]),
        ((0, 2), [2, 3, 4, 5, 6, 7]),
        ((7.9, 12), [0, 1, 2, 3, 4, 5, 6]),
        ((8, 12), [0, 1, 2, 3, 4, 5, 6, 7]),
    ],
)
def test_nothing_is_taken_from_the_window(place: tuple[float, float], left: list[int]) -> None:
    """A chunk that is partly in it belongs to it."""
    provider = Chunked(*((at, 1) for at in range(8)))

    found = spare_chunks(provider, free((0, 8)), window(*place))

    assert sorted(starts(found)) == sorted(left)


def test_several_ranges_around_a_window() -> None:
    provider = Chunked(*((at, 2) for at in range(0, 20, 2)))

    found = spare_chunks(provider, free((0, 4), (6, 4), (14, 6)), window(7, 15))

    assert starts(found) == [18, 16, 2, 0]


@pytest.mark.parametrize(
    ("sizes", "size", "taken"),
    [
        ([], 3, []),
        ([4, 2, 1], 0, []),
        ([4, 2, 1], 3, [2, 1]),
        ([4, 2, 1], 6, [4, 2]),
        ([4, 2, 1], 9, [4, 2, 1]),
        ([4, 4, 4], 7, [4]),
        ([4, 3, 3], 6, [4]),  # the largest that fits, not the best sum
        ([8], 7, []),
    ],
)
def test_as_much_as_fits(sizes: list[int], size: int, taken: list[int]) -> None:
    chunks = [ChunkInfo(BASE + at, one) for at, one in enumerate(sizes)]

    first, rest = divide(chunks, size)

    assert [chunk.size for chunk in first] == taken
    assert sorted(first + rest) == sorted(chunks)
    assert rest == [chunk for chunk in chunks if chunk not in first], "in the same order"


def test_every_spare_chunk_is_free_outside_the_window() -> None:
    chance = random.Random(1)
    found_any = 0
    for _ in range(300):
        cuts = sorted({0, 64, *(chance.randrange(65) for _ in range(20))})
        provider = Chunked(*((low, high - low) for low, high in itertools.pairwise(cuts)))
        edges = sorted(chance.randrange(64 * 16) / 16 for _ in range(8))
        ranges = [(low, high - low) for low, high in zip(edges[::2], edges[1::2], strict=True)]
        low = chance.randrange(64 * 4) / 4
        place = (low, low + chance.randrange(1, 20))

        found = spare_chunks(provider, free(*ranges), window(*place))

        expected = {
            at
            for at, size in ((at, chunk.size // UNIT) for at, chunk in _by_start(provider))
            if any(start <= at and at + size <= start + length for start, length in ranges)
            and (at + size <= place[0] or at >= place[1])
        }
        assert set(starts(found)) == expected
        found_any += bool(expected)
    assert found_any > 100


def _by_start(provider: Chunked) -> list[tuple[int, ChunkInfo]]:
    return [((chunk.ptr - BASE) // UNIT, chunk) for chunk in provider.all]
