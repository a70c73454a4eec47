"""README's code runs, and prints what README says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest

from umfpy.cli import COMMANDS, main

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", README, re.DOTALL)
COMMAND_LINES = [
    line
    for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    for line in block.splitlines()
    if line.startswith("umfpy ")
]


def test_every_python_block_shows_its_output():
    assert len(BLOCKS) == README.count("```python\n") >= 5


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block(number, tmp_path):
    code, output = BLOCKS[number]
    if "import cupy" in code:
        pytest.importorskip("cupy", reason="CuPy is not installed")
    script = tmp_path / "readme.py"
    script.write_text(code, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=120,
        # Processes that the block starts share its output, in the order of writing.
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == output


def test_the_first_screen_is_short():
    """One sentence, ten lines of code, and the two commands, before the support matrix."""
    first, _, _ = README.partition("\n## ")
    code, _ = BLOCKS[0]
    assert len(code.strip().splitlines()) <= 10
    assert "./ci/demo" in first
    assert "./ci/test" in first
    assert len(first.splitlines()) < 45


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_commands_have_the_options_that_readme_names(line):
    """Documentation that has drifted from --help is worse than none."""
    words = line.split(" -- ")[0].split()[1:]
    command: click.Command = main
    while isinstance(command, click.Group):
        name = words.pop(0)
        found = command.get_command(click.Context(command), name)
        assert found is not None, name
        command = found
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known


def test_changelog_and_readme_name_every_command():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f"`{name}`" in changelog
