"""What a run finds out: cases with their samples, and verdicts against the bars."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field
from typing import Any

from umfpy.bench.interleave import Ratio, compare


@dataclass(frozen=True)
class Goal:
    """What a number ought to be: `bar` is required, `aim` is hoped for.

    `at_most` says which way is better.
    """

    title: str
    bar: float
    aim: float | None = None
    at_most: bool = True
    unit: str = "x"

    def met(self, value: float, threshold: float) -> bool:
        return value <= threshold if self.at_most else value >= threshold


@dataclass(frozen=True)
class Verdict:
    """A goal, and what was measured; `value` is None where it could not be."""

    goal: Goal
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def passed(self) -> bool | None:
        return None if self.value is None else self.goal.met(self.value, self.goal.bar)

    @property
    def reached(self) -> bool | None:
        """Whether the aim was reached, too."""
        if self.value is None or self.goal.aim is None:
            return None
        return self.goal.met(self.value, self.goal.aim)


@dataclass
class Case:
    """One thing measured for several contenders.

    Attributes
    ----------
    samples
        By contender, in the order taken; in `unit`.
    absent
        By contender, why it did not take part.
    facts
        By contender, exact numbers beside the samples; the unit is part of the name.
    """

    scenario: str
    name: str
    unit: str
    samples: dict[str, list[float]] = field(default_factory=dict)
    absent: dict[str, str] = field(default_factory=dict)
    facts: dict[str, dict[str, Any]] = field(default_factory=dict)
    verdicts: list[Verdict] = field(default_factory=list)

    def median(self, contender: str) -> float | None:
        samples = self.samples.get(contender)
        return statistics.median(samples) if samples else None

    def ratio(self, of: str, against: str) -> Ratio | None:
        return compare(self.samples.get(of, ()), self.samples.get(against, ()))

    def judge(self, goal: Goal, value: Ratio | float | None) -> None:
        """Add a verdict; one that could not be measured is kept and says so."""
        if isinstance(value, Ratio):
            self.verdicts.append(Verdict(goal, value.value, value.low, value.high))
        else:
            self.verdicts.append(Verdict(goal, value))
