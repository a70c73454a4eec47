"""The command line: ``umfpy COMMAND``.

Results go to standard output, everything else to standard error.  The exit code is 0 if all is
well, 1 if something was found or failed, 2 if the command was not understood.
"""

from __future__ import annotations

import click

import umfpy
from umfpy.cli.group import CommandGroup

#: Each command is ``command`` in a module of its own, loaded when it is asked for.
COMMANDS = {
    "doctor": "umfpy.cli.doctor",
    "demo": "umfpy.cli.demo",
    "replay": "umfpy.cli.replay",
    "emulate": "umfpy.cli.emulate",
    "bench": "umfpy.cli.bench",
}


@click.group(cls=CommandGroup, modules=COMMANDS)
@click.version_option(umfpy.__version__, prog_name="umfpy")
def main() -> None:
    """A GPU memory manager for Python: pools, sharing and testing of device memory."""
