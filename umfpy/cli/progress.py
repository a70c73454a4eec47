"""Progress of long work, on a terminal only."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from umfpy.cli.output import console


@contextmanager
def progress_bar(label: str, steps: int) -> Iterator[Callable[[], None]]:
    """Show a bar on standard error while the block runs; yield what moves it on by one step.

    Where standard error is no terminal, nothing is shown.
    """
    target = console(stderr=True)
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=target, transient=True, disable=not target.is_terminal
    ) as progress:
        task = progress.add_task(label, total=steps)
        yield lambda: progress.advance(task)
