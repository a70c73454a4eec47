"""Writing results: JSON for programs, tables and words for people."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

import click
from rich.console import Console

#: Columns where there is no terminal to ask: a table in a file is not cut off.
_WIDE = 160


def print_json(value: Any) -> None:
    """Write `value` to standard output as JSON, sizes in exact bytes."""
    click.echo(json.dumps(value, indent=2))


def console(*, stderr: bool = False) -> Console:
    """Return a rich console; it heeds NO_COLOR, and writes no colours into files."""
    stream = sys.stderr if stderr else sys.stdout
    known = stream.isatty() or "COLUMNS" in os.environ
    return Console(stderr=stderr, width=None if known else _WIDE, highlight=False)


def note(text: str) -> None:
    """Tell the user something beside the result, on standard error."""
    click.echo(text, err=True)
