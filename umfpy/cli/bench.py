"""``umfpy bench``: umfpy beside the pools that are found on this machine."""

from __future__ import annotations

from pathlib import Path

import click

from umfpy.bench.contenders.registry import ALWAYS, CONTENDERS
from umfpy.bench.report import as_json, print_report
from umfpy.bench.results import Case
from umfpy.bench.scenarios.base import Settings
from umfpy.bench.scenarios.registry import SCENARIOS
from umfpy.cli.output import console, note, print_json
from umfpy.cli.progress import progress_bar


@click.command("bench")
@click.argument("scenarios", metavar="[SCENARIO]...", nargs=-1, type=click.Choice(list(SCENARIOS)))
@click.option(
    "--runs",
    type=click.IntRange(min=1),
    default=15,
    show_default=True,
    help="Samples of each contender, taken in turn.",
)
@click.option("--quick", is_flag=True, help="Small counts: to see that it works, not to publish.")
@click.option(
    "--traces",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder of .csv or .csv.gz traces; else $UMFPY_TRACES, or the one that comes with umfpy.",
)
@click.option(
    "--contender",
    "contenders",
    multiple=True,
    type=click.Choice([name for name in CONTENDERS if name not in ALWAYS]),
    help="Whom to compare with; may be given several times. All that are here if not given.",
)
@click.option("--check", is_flag=True, help="Exit with 1 if a bar is missed.")
@click.option("--json", "as_json_", is_flag=True, help="Print JSON: every sample, exact.")
@click.option("--list", "list_", is_flag=True, help="List scenarios and contenders, and stop.")
@click.pass_context
def command(
    ctx: click.Context,
    scenarios: tuple[str, ...],
    runs: int,
    quick: bool,
    traces: Path | None,
    contenders: tuple[str, ...],
    check: bool,
    as_json_: bool,
    list_: bool,
) -> None:
    """Measure umfpy beside the memory pools found on this machine, interleaved.

    Without SCENARIO all of them run. Pools are measured over simulated memory that nobody
    touches, where they allow it, so that a time is that of the pool and not of a driver.
    """
    if list_:
        print_choices()
        return
    chosen = frozenset(contenders) if contenders else None
    settings = Settings(runs=runs, quick=quick, traces=traces, contenders=chosen)
    cases = run_all(list(scenarios) or list(SCENARIOS), settings)
    if as_json_:
        print_json(as_json(cases))
    else:
        print_report(cases, console())
    missed = [v.goal.title for case in cases for v in case.verdicts if v.passed is False]
    if check and missed:
        note(f"{len(missed)} bars missed: {'; '.join(missed)}")
        ctx.exit(1)


def run_all(names: list[str], settings: Settings) -> list[Case]:
    cases: list[Case] = []
    with progress_bar("Measuring", len(names)) as advance:
        for name in dict.fromkeys(names):
            cases += SCENARIOS[name].run(settings)
            advance()
    return cases


def print_choices() -> None:
    click.echo("scenarios")
    for name, scenario in SCENARIOS.items():
        click.echo(f"  {name:14} {scenario.summary}")
    click.echo("contenders")
    for name, contender in CONTENDERS.items():
        ways = [way for way, has in (("Python", contender.python), ("C", contender.native)) if has]
        click.echo(f"  {name:14} {contender.title}, from {' and '.join(ways)}")
