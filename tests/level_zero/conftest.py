"""Fixtures for Level Zero, on emulated devices behind the loader if there is one."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from umfpy.providers.emulated import EmulatedLevelZero, emulate

# Also for the processes that are started here: they get this process's sys.path.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def emu() -> Iterator[EmulatedLevelZero]:
    """Three emulated GPUs of 4 GiB; a test that leaves something behind on them fails."""
    with mock.patch.dict(os.environ):
        emulated = emulate("level_zero", memory="4GiB", devices=3)
        before = emulated.leaks()
        yield emulated
        emulated.clear_faults()
        assert emulated.leaks() == before


@pytest.fixture
def run_python() -> Callable[..., str]:
    """Run a program in a new interpreter and return what it prints."""

    def run(program: str, *args: str, fds: tuple[int, ...] = (), **options: object) -> str:
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

    return run


@pytest.fixture
def peek() -> Callable[[int, int], bytes]:
    """Read host memory at an address."""
    return ctypes.string_at
