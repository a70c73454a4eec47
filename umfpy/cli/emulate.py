"""``umfpy emulate``: run any program on an emulated driver."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import click

from umfpy.cli.parameters import UNITS
from umfpy.errors import UmfpyError
from umfpy.providers.emulated import level_zero_library, library

#: Whatever follows the options belongs to the program, dashes and all.
_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": False}

_NOT_EXECUTABLE, _NOT_FOUND = 126, 127

_Function = TypeVar("_Function", bound=Callable[..., None])


def _of_every_driver(function: _Function, least_devices: int = 1) -> _Function:
    """Add the options and the argument that the commands of all drivers have."""
    for decorate in reversed(
        (
            click.option(
                "--memory",
                default="16GiB",
                show_default=True,
                metavar="SIZE",
                help=f"What each device has. {UNITS}",
            ),
            click.option(
                "--devices",
                default=1,
                show_default=True,
                type=click.IntRange(least_devices, 16),
                help="How many devices there are.",
            ),
            click.option(
                "--report",
                is_flag=True,
                help="At its end, each process says on standard error what leaked and what was "
                "called.  What pools and providers of umfpy merely keep for reuse goes back first.",
            ),
            click.option(
                "--force",
                is_flag=True,
                help="Also on a machine with a real GPU, which is hidden.",
            ),
            click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED),
        )
    ):
        function = decorate(function)
    return function


@click.group(name="emulate", short_help="Run a program on an emulated driver.")
def command() -> None:
    """Run a program on an emulated driver, without a GPU and without changing it."""


@command.command(name="cuda", context_settings=_PROGRAM)
@_of_every_driver
@click.option(
    "--capability",
    default="9.0",
    show_default=True,
    metavar="MAJOR.MINOR",
    help="Compute capability that they claim.",
)
def cuda(
    memory: str, devices: int, capability: str, report: bool, force: bool, program: tuple[str, ...]
) -> None:
    """Run PROGRAM on an emulated CUDA driver.

    Every process that it starts runs on one too.  The exit status is the program's.

    \b
    umfpy emulate cuda --memory 80GiB --devices 2 -- python app.py --its-own-option
    """
    try:
        settings = library.cuda_settings(memory, devices, capability, report)
        path = library.cuda_library()
        library.refuse_beside_real_gpu(force)
        environment = library.preload_environment(path, settings)
    except UmfpyError as error:
        raise click.UsageError(str(error)) from error
    _become(program, environment)


@command.command(name="level_zero", context_settings=_PROGRAM)
@partial(_of_every_driver, least_devices=0)
def level_zero(
    memory: str, devices: int, report: bool, force: bool, program: tuple[str, ...]
) -> None:
    """Run PROGRAM on an emulated Level Zero driver.

    Intel's loader takes it, where there is one (Debian: libze1); otherwise it stands in for the
    loader.  Every process that PROGRAM starts runs on one too.  The exit status is the program's.

    \b
    umfpy emulate level_zero --memory 48GiB --devices 2 -- python app.py --its-own-option
    """
    try:
        settings = level_zero_library.driver_settings(memory, devices, report)
        path = level_zero_library.driver_library()
        level_zero_library.refuse_beside_real_gpu(force)
        loader = level_zero_library.load_loader()
        environment = level_zero_library.environment(path, settings, loader)
    except UmfpyError as error:
        raise click.UsageError(str(error)) from error
    _become(program, environment)


def _become(program: tuple[str, ...], environment: dict[str, str]) -> None:
    """Replace this process by `program`; exit as a shell would where that cannot be done."""
    try:
        os.execvpe(program[0], list(program), environment)
    except OSError as error:
        click.echo(f"umfpy emulate: cannot run {program[0]}: {error.strerror}", err=True)
        missing = isinstance(error, FileNotFoundError)
        raise click.exceptions.Exit(_NOT_FOUND if missing else _NOT_EXECUTABLE) from error
