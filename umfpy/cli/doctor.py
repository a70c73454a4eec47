"""``umfpy doctor``: what is there, what is missing, and how to get it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import click
from rich.markup import escape

import umfpy
from umfpy.cli.checks import CHECKS, Finding, State
from umfpy.cli.output import console, print_json
from umfpy.units import format_size

_STYLES = {State.OK: "green", State.ABSENT: "yellow", State.PROBLEM: "bold red"}


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, sizes in exact bytes.")
@click.pass_context
def command(ctx: click.Context, as_json: bool) -> None:
    """Look at drivers, devices and bindings, and say what is missing and how to get it.

    What is absent is no fault.  Exit code 1 if something is there and does not work.
    """
    findings = [check() for check in CHECKS]
    healthy = all(finding.state != State.PROBLEM for finding in findings)
    if as_json:
        print_json(
            {
                "umfpy": umfpy.__version__,
                "ok": healthy,
                "findings": [dataclasses.asdict(finding) for finding in findings],
            }
        )
    else:
        for finding in findings:
            _print(finding)
    if not healthy:
        ctx.exit(1)


def _print(finding: Finding) -> None:
    out = console()
    state = f"[{_STYLES[finding.state]}]{finding.state.value:8}[/]"
    out.print(f"{state} [bold]{finding.subject}[/]: {escape(finding.summary)}", soft_wrap=True)
    for line in _lines(finding.facts):
        out.print(f"           {escape(line)}", soft_wrap=True)
    if finding.advice:
        out.print(f"         → {escape(finding.advice)}", soft_wrap=True)


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    for key, value in facts.items():
        if isinstance(value, list):
            for item in value:
                yield ", ".join(_words(*pair) for pair in item.items())
        elif value is not None:
            yield _words(key, value)


def _words(key: str, value: object) -> str:
    """Return a fact as people read it."""
    if key.endswith("_bytes") and isinstance(value, int):
        key, value = key.removesuffix("_bytes"), format_size(value)
    if isinstance(value, bool):
        value = "yes" if value else "no"
    return f"{key.replace('_', ' ')}: {value}"
