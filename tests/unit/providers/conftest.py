"""Fixtures for the providers."""

from __future__ import annotations

import ctypes
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
def peek() -> Callable[[int, int], bytes]:
    """Read host memory at an address."""
    return ctypes.string_at
