"""Fixtures for Level Zero, on emulated devices behind the loader if there is one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
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
