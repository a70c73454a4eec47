"""What the tests of all emulated drivers share."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import umfpy

#: Variables of the environment that put a process on an emulated driver.
_OURS = (
    "LD_PRELOAD",
    "UMFPY_EMULATE_CUDA",
    "UMFPY_EMULATE_LEVEL_ZERO",
    "ZE_ENABLE_ALT_DRIVERS",
)


def emulated(driver: str) -> Iterator[Any]:
    """Two devices of 1 GiB; what a test leaves behind fails it."""
    emu = umfpy.emulate(driver, memory="1GiB", devices=2, children=False, force=True)
    yield emu
    emu.clear_faults()
    assert emu.leaks() == {}


def plain_environment() -> dict[str, str]:
    """This process's environment, without any emulated driver."""
    return {name: value for name, value in os.environ.items() if name not in _OURS}


def run_code(
    code: str, environment: dict[str, str], folder: Path
) -> subprocess.CompletedProcess[str]:
    """Run Python code in a fresh process that finds modules of `folder`."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
    )
