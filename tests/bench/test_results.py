"""Verdicts: which way is better, and what could not be measured."""

from __future__ import annotations

import pytest

from umfpy.bench.interleave import Ratio
from umfpy.bench.results import Case, Goal, Verdict


@pytest.mark.parametrize(
    ("value", "passed", "reached"),
    [
        (0.4, True, True),
        (0.5, True, True),
        (0.8, True, False),
        (1.0, True, False),
        (1.1, False, False),
    ],
)
def test_at_most(value, passed, reached):
    verdict = Verdict(Goal("time", bar=1.0, aim=0.5), value)

    assert (verdict.passed, verdict.reached) == (passed, reached)


@pytest.mark.parametrize(("value", "passed"), [(0.69, False), (0.7, True), (2.0, True)])
def test_at_least(value, passed):
    assert Verdict(Goal("throughput", bar=0.7, at_most=False), value).passed is passed


def test_what_was_not_measured_is_neither_passed_nor_missed():
    verdict = Verdict(Goal("time", bar=1.0, aim=0.5), None)

    assert verdict.passed is None
    assert verdict.reached is None


def test_without_an_aim_none_is_reached():
    assert Verdict(Goal("time", bar=1.0), 0.1).reached is None


def test_a_case_judges_ratios_numbers_and_nothing():
    case = Case("hit", "one size", "ns/op", samples={"umfpy": [1.0, 2.0], "other": [2.0, 4.0]})
    goal = Goal("time", bar=1.0)

    case.judge(goal, case.ratio("umfpy", "other"))
    case.judge(goal, 3)
    case.judge(goal, case.ratio("umfpy", "nobody"))

    assert [verdict.value for verdict in case.verdicts] == [0.5, 3, None]
    assert case.verdicts[0] == Verdict(goal, 0.5, 0.5, 0.5)
    assert case.median("umfpy") == 1.5
    assert case.median("nobody") is None


def test_a_ratio_keeps_its_spread():
    case = Case("hit", "one size", "ns/op")

    case.judge(Goal("time", bar=1.0), Ratio(2.0, 1.5, 2.5))

    assert case.verdicts == [Verdict(Goal("time", bar=1.0), 2.0, 1.5, 2.5)]
