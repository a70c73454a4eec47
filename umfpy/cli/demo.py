"""``umfpy demo``: what umfpy does, in a few seconds, on a GPU or an emulated one."""

from __future__ import annotations

from typing import Any

import click
from rich.markup import escape

import umfpy
from umfpy.cli.demonstration import ACTS
from umfpy.cli.demonstration.device import Device
from umfpy.cli.output import console, print_json


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, sizes in exact bytes.")
def command(as_json: bool) -> None:
    """Show the main job: pools, a replayed trace, sharing, CuPy, leaks.

    Runs on the first CUDA device, or on an emulated one where there is none.  Every claim is
    checked; exit code 1 if one does not hold.
    """
    device = Device()
    out = console()
    description = device.describe()
    result: dict[str, Any] = {"umfpy": umfpy.__version__, "device": description}
    if not as_json:
        out.print(f"[bold]umfpy {umfpy.__version__}[/] on {description}")
    for number, act in enumerate(ACTS, 1):
        if not as_json:
            out.print(f"\n[bold]{number}. {act.title}[/]")
        facts = act.run(device)
        result[act.key] = facts
        if not as_json:
            for line in act.tell(facts):
                out.print(f"   {escape(line)}", soft_wrap=True)
    if as_json:
        print_json(result)
    else:
        out.print("\nEverything held.  Next: umfpy doctor, umfpy replay --help", soft_wrap=True)
