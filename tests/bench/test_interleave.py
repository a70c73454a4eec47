"""How samples are taken in turn, and what becomes of them."""

from __future__ import annotations

import gc

import pytest

from umfpy.bench.interleave import compare, geometric_mean, interleave, quartiles


def record(order: list[str], name: str, values: list[float]) -> object:
    def sample() -> float:
        order.append(name)
        return values.pop(0) if values else 0.0

    return sample


def test_each_round_begins_one_lane_further():
    order: list[str] = []
    lanes = {name: record(order, name, []) for name in "ABC"}

    interleave(lanes, rounds=4, warmups=0)

    assert "".join(order) == "ABCBCACABABC"


def test_warm_ups_come_first_and_are_not_kept():
    order: list[str] = []
    lanes = {"A": record(order, "A", [99.0, 1.0, 2.0]), "B": record(order, "B", [99.0, 3.0, 4.0])}

    samples = interleave(lanes, rounds=2, warmups=1)

    assert len(order) == 6
    assert samples == {"A": [1.0, 2.0], "B": [3.0, 4.0]}


def test_no_lanes_give_no_samples():
    assert interleave({}, rounds=3) == {}


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_meanwhile_and_is_left_as_it_was(enabled):
    seen: list[bool] = []

    def sample() -> float:
        seen.append(gc.isenabled())
        return 1.0

    (gc.enable if enabled else gc.disable)()
    try:
        interleave({"A": sample}, rounds=2)
        assert gc.isenabled() is enabled
    finally:
        gc.enable()
    assert not any(seen)


def test_the_collector_comes_back_when_a_lane_fails():
    def fails() -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        interleave({"A": fails}, rounds=1)
    assert gc.isenabled()


def test_a_ratio_is_the_median_of_the_rounds():
    # Everything takes ten times as long in the second round: the ratio does not see it.
    ratio = compare([1.0, 10.0, 1.0], [2.0, 20.0, 2.0])

    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == (0.5, 0.5, 0.5)


def test_a_ratio_has_the_quartiles_of_the_rounds():
    ratio = compare([1.0, 2.0, 3.0, 4.0, 5.0], [1.0] * 5)

    assert ratio is not None
    assert (ratio.low, ratio.value, ratio.high) == (2.0, 3.0, 4.0)


@pytest.mark.parametrize(
    ("of", "against"), [([], [1.0]), ([1.0], []), ([1.0, 2.0], [0.0, 0.0]), ([], [])]
)
def test_nothing_to_divide_by_gives_no_ratio(of, against):
    assert compare(of, against) is None


def test_a_round_of_zero_is_left_out():
    ratio = compare([1.0, 3.0], [0.0, 1.0])

    assert ratio is not None
    assert ratio.value == 3.0


def test_quartiles_of_one_value_are_that_value():
    assert quartiles([7.0]) == (7.0, 7.0)


def test_geometric_mean():
    assert geometric_mean([1.0, 4.0]) == pytest.approx(2.0)
    assert geometric_mean([]) is None
    assert geometric_mean([1.0, 0.0]) is None
