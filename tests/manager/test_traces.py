"""Recorded traces through the layouts, over memory that is only addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from umfpy.bench.scenarios.base import Settings
from umfpy.bench.scenarios.manager import LAYOUTS, PRESETS, live_slices, utilization
from umfpy.trace import Trace
from umfpy.trace.shipped import load_shipped

FOLDER = Path(__file__).parents[3] / "shared" / "traces"
FILES = sorted(FOLDER.glob("*.csv.gz"))


def check_layouts(trace: Trace) -> None:
    case = utilization(trace)
    assert set(case.samples) == set(LAYOUTS)
    assert not any(facts["failed"] for facts in case.facts.values()), case.facts
    (verdict,) = case.verdicts
    assert verdict.passed, f"{verdict.goal.title}: {verdict.value}; {case.samples}"


@pytest.mark.parametrize("file", FILES or [None], ids=lambda file: file and file.stem)
def test_some_preset_holds_hardly_more_than_the_default_pool(file: Path | None) -> None:
    if file is None:
        pytest.skip("../shared/traces is absent")
    check_layouts(Trace.load(file))


def test_the_trace_that_is_shipped() -> None:
    check_layouts(load_shipped())


@pytest.mark.parametrize("preset", PRESETS)
def test_live_slices_are_measured(preset: str) -> None:
    case = live_slices(preset, Settings(runs=3, quick=True))
    (verdict,) = case.verdicts
    assert verdict.value is not None
    assert all(len(samples) == 3 for samples in case.samples.values())
