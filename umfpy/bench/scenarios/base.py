"""What a scenario is, and what all of them are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from umfpy.bench.results import Case


@dataclass(frozen=True)
class Settings:
    """How to run.

    Attributes
    ----------
    runs
        Samples of each contender.
    quick
        Whether the counts are small: to see that it works, not to publish.
    traces
        A folder of traces; None for ``$UMFPY_TRACES``, or the one that is shipped.
    contenders
        Names of those to compare with; None for all.
    """

    runs: int = 15
    quick: bool = False
    traces: Path | None = None
    contenders: frozenset[str] | None = None

    def count(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@dataclass(frozen=True)
class Scenario:
    """Something to measure; `run` yields a case after the other as they are done."""

    name: str
    summary: str
    run: Callable[[Settings], Iterator[Case]]
