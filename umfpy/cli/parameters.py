"""Command line parameters that several commands have."""

from __future__ import annotations

import click

from umfpy.errors import InvalidArgument
from umfpy.units import parse_size

#: Of options that are read so, for their help.
UNITS = "In bytes; KiB, MiB, GiB and K, M, G count by 1024, kB, MB, GB by 1000."


def read_size(ctx: click.Context, param: click.Parameter, value: str | None) -> int | None:
    """Return a size such as ``16GiB`` in bytes; the callback of an option."""
    if value is None:
        return None
    try:
        return parse_size(value)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), ctx, param) from error
