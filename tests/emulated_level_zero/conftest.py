from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import umfpy
from umfpy.providers.emulated import EmulatedLevelZero

_HERE = Path(__file__).parent


def _load_support() -> Any:
    spec = importlib.util.spec_from_file_location("level_zero_support", _HERE / "support.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


support = _load_support()


@pytest.fixture(scope="session")
def z() -> Any:
    """Numbers and structures of Level Zero."""
    return support


@pytest.fixture
def emu() -> Iterator[EmulatedLevelZero]:
    """Two devices of 1 GiB; what a test leaves behind fails it."""
    emulated = umfpy.emulate("level_zero", memory="1GiB", devices=2, children=False, force=True)
    yield emulated
    emulated.clear_faults()
    assert emulated.leaks() == {}


@pytest.fixture
def ze(emu: EmulatedLevelZero) -> Iterator[Any]:
    """Calls, with a context for all devices."""
    begun = support.Ze().begin()
    emu.reset_calls()
    emu.reset_clock()
    yield begun
    emu.clear_faults()
    begun.end()


@pytest.fixture
def peer(emu: EmulatedLevelZero) -> Iterator[Any]:
    """A second process, begun."""
    other = support.Peer(emu.preload_environment())
    yield other
    other.close()


Runner = Callable[..., "subprocess.CompletedProcess[str]"]

_OURS = ("LD_PRELOAD", "UMFPY_EMULATE_LEVEL_ZERO", "ZE_ENABLE_ALT_DRIVERS")


@pytest.fixture
def run(emu: EmulatedLevelZero) -> Runner:
    """Run Python code in a fresh process, by default emulated and with ``ze`` begun."""

    def runner(code: str, begin: bool = True, emulated: bool = True, **environment: str) -> Any:
        base = {name: value for name, value in os.environ.items() if name not in _OURS}
        if emulated:
            base = emu.preload_environment(base)
        code = "from support import *\n" + ("ze = Ze().begin()\n" if begin else "") + code
        base.update(environment)
        return subprocess.run(
            [sys.executable, "-c", code],
            env=base,
            cwd=_HERE,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return runner
