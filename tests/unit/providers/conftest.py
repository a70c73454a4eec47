"""Fixtures for the providers."""

from __future__ import annotations

import ctypes
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from umfpy.providers.emulated import EmulatedCuda, emulate


@pytest.fixture
def emu() -> Iterator[EmulatedCuda]:
    """Two emulated GPUs; a test that leaves something behind on them fails."""
    emulated = emulate("cuda", memory="16GiB", devices=2)
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
