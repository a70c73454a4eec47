"""A group of commands that are loaded when they are needed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any, cast

import click

from umfpy.errors import UmfpyError


class CommandGroup(click.Group):
    """Loads the module of a command when it is asked for, so that no command waits for another's
    imports, and reports umfpy's errors as one line.

    Parameters
    ----------
    modules
        The module of each command; one that is not installed is left out.
    """

    def __init__(self, *args: Any, modules: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._modules = modules

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, module in self._modules.items() if find_spec(module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        module = importlib.import_module(self._modules[cmd_name])
        return cast(click.Command, module.command)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except UmfpyError as error:
            raise click.ClickException(" ".join(str(error).split())) from error
