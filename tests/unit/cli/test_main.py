"""The command line as a whole: loading, exit codes, where what is written."""

from __future__ import annotations

import subprocess
import sys

import click
import pytest

import umfpy
from umfpy.cli import COMMANDS, main
from umfpy.cli.group import CommandGroup


def test_version(invoke):
    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"umfpy, version {umfpy.__version__}\n")


def test_help_names_every_command(invoke):
    result = invoke("--help")
    assert result.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name}" in result.output


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(invoke, name):
    result = invoke(name, "--help")
    assert result.exit_code == 0
    assert result.output.startswith(f"Usage: main {name}")


@pytest.mark.parametrize("arguments", [["nonsense"], ["--nonsense"], ["replay"], ["doctor", "x"]])
def test_what_is_not_understood_is_2(invoke, arguments):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Error:" in result.stderr


def test_asking_for_one_command_loads_no_other():
    code = (
        "import sys\n"
        "from umfpy.cli import main\n"
        "main(['replay', '--help'], standalone_mode=False)\n"
        "print(sorted(m for m in sys.modules if m in "
        "('umfpy.cli.demo', 'umfpy.cli.doctor', 'umfpy.cli.bench', 'cuda', 'cupy')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("\n[]\n"), done.stderr


@pytest.fixture
def group(monkeypatch, tmp_path):
    """A group of a command that fails and one whose module is not there."""
    (tmp_path / "failing_command.py").write_text(
        "import click, umfpy\n"
        "@click.command()\n"
        "def command():\n"
        "    raise umfpy.UmfpyError('it went wrong:\\n  try this')\n",
        encoding="utf-8",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    return CommandGroup("g", modules={"fails": "failing_command", "missing": "no_such_module_at"})


def test_an_error_of_umfpy_is_one_line_and_1(group):
    result = click.testing.CliRunner().invoke(group, ["fails"])
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr == "Error: it went wrong: try this\n"


def test_a_command_that_is_not_installed_does_not_break_the_others(group):
    runner = click.testing.CliRunner()
    assert "fails" in runner.invoke(group, ["--help"]).output
    assert "missing" not in runner.invoke(group, ["--help"]).output
    result = runner.invoke(group, ["missing"])
    assert result.exit_code == 2
    assert "No such command 'missing'" in result.stderr


def test_main_is_a_command():
    assert isinstance(main, click.Command)
