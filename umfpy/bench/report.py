"""A run as JSON, and as a table for people."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.table import Table

from umfpy.bench.interleave import quartiles
from umfpy.bench.machine import describe_machine
from umfpy.bench.results import Case, Verdict


def as_json(cases: list[Case]) -> dict[str, Any]:
    """Return everything, exact: samples one by one, medians, verdicts, and where it was."""
    return {
        "machine": describe_machine(),
        "cases": [
            {
                "scenario": case.scenario,
                "name": case.name,
                "unit": case.unit,
                "medians": {name: case.median(name) for name in case.samples},
                "samples": case.samples,
                "absent": case.absent,
                "facts": case.facts,
                "verdicts": [verdict_as_json(verdict) for verdict in case.verdicts],
            }
            for case in cases
        ],
    }


def verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        **asdict(verdict.goal),
        "value": verdict.value,
        "low": verdict.low,
        "high": verdict.high,
        "passed": verdict.passed,
        "reached": verdict.reached,
    }


def print_report(cases: list[Case], console: Console) -> None:
    """Write the samples, the verdicts, who was absent, and where it was."""
    console.print(samples_table(cases))
    if any(case.verdicts for case in cases):
        console.print(verdicts_table(cases))
    for name, reason in absences(cases):
        console.print(f"absent: {name}: {reason}", markup=False)
    console.print("; ".join(machine_words(describe_machine())), markup=False)


def machine_words(machine: dict[str, Any]) -> Iterator[str]:
    """Yield what readers of a table have to know of the machine, without what it lacks."""
    yield f"{machine['cpu']}, {machine['cpus']} CPUs, load {machine['load']:.1f}"
    yield machine["python"]
    umf = machine["versions"]["umf"]
    if umf is not None:
        yield f"umf {umf}, disjoint pool {machine['umf_disjoint']['umf']}"


def samples_table(cases: list[Case]) -> Table:
    table = Table(title="medians, with quartiles")
    for title in ("scenario", "case", "contender"):
        table.add_column(title, no_wrap=True)
    for title in ("median", "quartiles"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for case in cases:
        for name, samples in case.samples.items():
            low, high = quartiles(samples)
            spread = f"{number(low)} - {number(high)}" if len(samples) > 1 else ""
            table.add_row(
                case.scenario, case.name, name, number(case.median(name)), spread, case.unit
            )
        if case.samples:
            table.add_section()
    return table


def verdicts_table(cases: list[Case]) -> Table:
    table = Table(title="against the bars")
    table.add_column("what", no_wrap=True)
    for title in ("measured", "spread", "bar", "aim"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    for case in cases:
        for verdict in case.verdicts:
            table.add_row(*verdict_cells(verdict))
    return table


def verdict_cells(verdict: Verdict) -> tuple[str, ...]:
    goal = verdict.goal
    sign = "≤" if goal.at_most else "≥"
    unit = f" {goal.unit}" if goal.unit else ""
    spread = ""
    if verdict.low is not None and verdict.high is not None and verdict.low != verdict.high:
        spread = f"{number(verdict.low)} - {number(verdict.high)}"
    return (
        goal.title,
        "not measured" if verdict.value is None else number(verdict.value) + unit,
        spread,
        f"{sign} {number(goal.bar)}",
        "" if goal.aim is None else f"{sign} {number(goal.aim)}",
        mark(verdict),
    )


def mark(verdict: Verdict) -> str:
    """Return the outcome in a word, so that it does not hang on a colour."""
    if verdict.passed is None:
        return "-"
    if not verdict.passed:
        return "[red]missed[/red]"
    return "[green]aim[/green]" if verdict.reached else "[green]ok[/green]"


def number(value: float | None) -> str:
    """Return three or four digits that mean something."""
    if value is None:
        return ""
    if value >= 1_000 or value == int(value):
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.3f}"


def absences(cases: list[Case]) -> Iterator[tuple[str, str]]:
    """Yield each contender that was absent, with each reason, once."""
    seen = dict.fromkeys(item for case in cases for item in case.absent.items())
    yield from seen
