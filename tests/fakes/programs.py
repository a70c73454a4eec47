"""Programs that run in a process of their own."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def run_program(source: str, *, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run `source` as a program that can import `umfpy` and `tests.fakes`; return how it ended."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def assert_silent(program: subprocess.CompletedProcess[str], output: str = "") -> None:
    """The program ended with status 0, printed `output`, and complained of nothing."""
    assert (program.returncode, program.stdout.strip(), program.stderr.strip()) == (0, output, "")


def run_python(program: str, *args: str, fds: tuple[int, ...] = (), **options: Any) -> str:
    """Run a program, with warnings as errors, that must end well; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program, *args],
        capture_output=True,
        text=True,
        timeout=60,
        pass_fds=fds,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
