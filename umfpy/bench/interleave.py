"""Samples of several lanes taken in turn, so that whatever slows the machine slows all of them."""

from __future__ import annotations

import gc
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: Takes one sample: a cost per operation, or a rate.
Lane = Callable[[], float]


@dataclass(frozen=True)
class Ratio:
    """The median of the ratios round by round; `low` and `high` are their quartiles.

    The two samples of a round were taken next to each other, so that a machine that is slower
    for a while does not show.
    """

    value: float
    low: float
    high: float


def interleave(lanes: Mapping[str, Lane], rounds: int, warmups: int = 1) -> dict[str, list[float]]:
    """Return `rounds` samples of every lane, in the order in which they were taken.

    Each round takes one sample of each lane and begins one lane further than the round before.
    `warmups` rounds come first and are not kept.  The garbage collector rests meanwhile.
    """
    names = list(lanes)
    samples: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        for turn in range(-warmups, rounds):
            start = turn % len(names) if names else 0
            for name in names[start:] + names[:start]:
                sample = lanes[name]()
                if turn >= 0:
                    samples[name].append(sample)
    finally:
        if collecting:
            gc.enable()
    return samples


def compare(of: Sequence[float], against: Sequence[float]) -> Ratio | None:
    """Return how two lanes compare; None where there is nothing to divide, or to divide by."""
    rounds = [a / b for a, b in zip(of, against, strict=False) if b > 0]
    if not rounds:
        return None
    return Ratio(statistics.median(rounds), *quartiles(rounds))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    if len(values) < 2:
        return values[0], values[0]
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return low, high


def geometric_mean(values: Iterable[float]) -> float | None:
    """Return the geometric mean; None of nothing, or of anything that is not positive."""
    kept = list(values)
    if not kept or min(kept) <= 0:
        return None
    return math.exp(math.fsum(map(math.log, kept)) / len(kept))
