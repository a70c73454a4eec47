"""How much memory a pool over virtual memory takes at a time, and in what chunks."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from umfpy import InvalidArgument, VirtualGrowth

MIB, GIB = 1 << 20, 1 << 30
UNIT = 2 * MIB
GROWTH = VirtualGrowth()


# Steps.


@pytest.mark.parametrize(
    ("held", "step"),
    [
        (0, 0),
        (256 * MIB - 1, 0),
        (256 * MIB, 24 * MIB),
        (960 * MIB, 24 * MIB),
        (961 * MIB, 961 * MIB // 40),
        (80 * GIB, 2 * GIB),
    ],
)
def test_a_step_follows_what_is_held(held: int, step: int) -> None:
    assert GROWTH.step(held) == step


def test_steps_of_ones_own() -> None:
    growth = VirtualGrowth(small_until=0, minimum=3, divisor=10)

    assert [growth.step(held) for held in (0, 29, 40, 41)] == [3, 3, 4, 4]


# Chunks.


def chunk(new: int, held: int, idle: int, total: int | None = None) -> int:
    return GROWTH.chunk_size(new, held, idle, total, UNIT)


@pytest.mark.parametrize("new", [UNIT, 24 * MIB, 100 * MIB, 256 * MIB])
@pytest.mark.parametrize("held", [0, 300 * MIB, 10 * GIB])
def test_one_chunk_a_step_where_nearly_everything_is_used(new: int, held: int) -> None:
    assert chunk(new, held, idle=0) == new


def test_the_more_lies_idle_the_smaller_are_the_chunks() -> None:
    held, new = GIB, 240 * MIB
    shares = (0.0, 0.006, 0.0134, 0.02, 0.0267, 0.0334, 0.04, 0.3, 1.0)

    sizes = [chunk(new, held, int(share * held)) // MIB for share in shares]

    assert sizes == [240, 240, 120, 80, 60, 48, 40, 40, 40]


def test_no_chunk_is_less_than_a_hundredth_of_what_is_held() -> None:
    """More of them than that would cost too many calls."""
    held = 8 * GIB
    finest = held // 100

    assert chunk(100 * MIB, held, idle=held) == 50 * MIB
    assert chunk(60 * MIB, held, idle=held) == 60 * MIB
    assert 100 * MIB / -(-100 * MIB // finest) <= chunk(100 * MIB, held, idle=held)


def test_no_chunk_is_larger_than_the_largest() -> None:
    assert chunk(GIB, 0, idle=0) == 256 * MIB
    assert chunk(3 * 256 * MIB + UNIT, 0, idle=0) == 194 * MIB, "four that are alike"


def test_small_chunks_on_a_device_that_is_about_to_be_full() -> None:
    total = 80 * GIB
    before, after = int(0.3 * total) - 1, int(0.3 * total)

    assert chunk(200 * MIB, before, 0, total) == 200 * MIB
    assert chunk(200 * MIB, after, 0, total) == 8 * MIB, "56 GiB / 8192, in whole units"
    assert chunk(200 * MIB, total, 0, total) == UNIT
    assert chunk(200 * MIB, total + GIB, 0, total) == UNIT, "others count differently"


def test_a_device_that_does_not_say_what_it_has() -> None:
    assert chunk(200 * MIB, 1 << 50, 0, None) == 200 * MIB


def test_chunks_are_whole_units_and_as_few_as_the_size_makes() -> None:
    """In every regime: together they are what is new, give or take the rounding of each."""
    seen = set()
    sizes = (UNIT, 3 * UNIT, 24 * MIB, 100 * MIB, 998 * MIB, 5 * GIB)
    helds = (0, UNIT, 255 * MIB, GIB, 30 * GIB, 79 * GIB, 81 * GIB)
    for new, held, share, total in itertools.product(
        sizes, helds, (0.0, 0.01, 0.035, 0.9), (None, 80 * GIB)
    ):
        size = chunk(new, held, int(share * held), total)

        assert size % UNIT == 0
        assert UNIT <= size <= max(256 * MIB, UNIT)
        count = -(-new // size)
        assert (count - 1) * size < new, "no chunk is left over"
        assert size <= new
        seen.add(size)
    assert len(seen) > 10


@pytest.mark.parametrize("unit", [4096, 2 * MIB, 512 * MIB])
def test_no_chunk_is_less_than_the_unit(unit: int) -> None:
    growth = VirtualGrowth(largest=1)

    assert growth.chunk_size(3 * unit, GIB, GIB, GIB, unit) == unit


# What is refused.


@pytest.mark.parametrize(
    "wrong",
    [
        {"divisor": 0},
        {"divisor": -1},
        {"parts": 0},
        {"finest": 0},
        {"largest": 0},
        {"left": 0},
        {"small_until": -1},
        {"minimum": -1},
        {"idle": 0.0},
        {"idle": 1.5},
        {"idle": -0.1},
        {"idle": float("nan")},
        {"scarce": 0},
        {"scarce": 1.01},
        {"scarce": float("nan")},
    ],
)
def test_what_makes_no_sense_is_refused_by_name(wrong: dict[str, Any]) -> None:
    ((name, value),) = wrong.items()

    with pytest.raises(InvalidArgument, match=f"{name}={value}".replace(".", r"\.")):
        VirtualGrowth(**wrong)


@pytest.mark.parametrize(
    "extreme",
    [
        {"divisor": 1, "parts": 1, "finest": 1, "largest": 1, "left": 1},
        {"small_until": 0, "minimum": 0},
        {"idle": 1.0, "scarce": 1.0},
        {"idle": 1e-9, "scarce": 1e-9},
    ],
)
def test_the_ends_of_what_makes_sense(extreme: dict[str, Any]) -> None:
    growth = VirtualGrowth(**extreme)

    assert growth.chunk_size(4 * UNIT, GIB, GIB, GIB, UNIT) % UNIT == 0
    assert growth.step(GIB) >= 0
