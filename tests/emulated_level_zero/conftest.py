from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.emulated_level_zero import support
from tests.emulation_support import emulated, plain_environment, run_code
from tests.emulation_support.peer import Peer
from umfpy.providers.emulated import EmulatedLevelZero

_SUPPORT = Path(support.__file__)


@pytest.fixture(scope="session")
def z() -> Any:
    """Numbers and structures of Level Zero."""
    return support


@pytest.fixture
def emu() -> Iterator[EmulatedLevelZero]:
    """Two devices of 1 GiB; what a test leaves behind fails it."""
    yield from emulated("level_zero")


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
def peer(emu: EmulatedLevelZero) -> Iterator[Peer]:
    """A second process, begun."""
    other = Peer(_SUPPORT, emu.preload_environment())
    yield other
    other.close()


Runner = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def run(emu: EmulatedLevelZero) -> Runner:
    """Run Python code in a fresh process, by default emulated and with ``ze`` begun."""

    def runner(
        code: str, begin: bool = True, emulated: bool = True, **environment: str
    ) -> CompletedProcess[str]:
        base = plain_environment()
        if emulated:
            base = emu.preload_environment(base)
        code = "from support import *\n" + ("ze = Ze().begin()\n" if begin else "") + code
        return run_code(code, {**base, **environment}, _SUPPORT.parent)

    return runner
