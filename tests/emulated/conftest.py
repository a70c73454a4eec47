from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from tests.emulated import support
from tests.emulation_support import emulated, plain_environment, run_code
from tests.emulation_support.peer import Peer
from umfpy.providers.emulated import EmulatedCuda

_SUPPORT = Path(support.__file__)


@pytest.fixture
def emu() -> Iterator[EmulatedCuda]:
    """Two devices of 1 GiB; what a test leaves behind fails it."""
    yield from emulated("cuda")


@pytest.fixture
def cu(emu: EmulatedCuda) -> Iterator[Any]:
    """Calls, with the primary context of device 0 current and the thread's stack as it was."""
    cuda = support.Cuda()
    cuda("cuInit", 0)
    context = cuda("cuDevicePrimaryCtxRetain", 0)
    cuda("cuCtxPushCurrent", context)
    emu.reset_calls()
    emu.reset_clock()
    yield cuda
    emu.clear_faults()
    cuda("cuCtxPopCurrent")
    leaked = emu.leaks()
    cuda("cuDevicePrimaryCtxRelease", 0)
    assert leaked == {}


@pytest.fixture
def blocks(cu: support.Cuda) -> Iterator[list[int]]:
    """Five blocks for graphs; what a test has freed itself it takes out of the list."""
    addresses = [cu.alloc(support.SIZE) for _ in range(5)]
    yield addresses
    for address in addresses:
        cu("cuMemFree", address)


@pytest.fixture
def peer(emu: EmulatedCuda) -> Iterator[Peer]:
    """A second process, with its own context current."""
    other = Peer(_SUPPORT, emu.preload_environment())
    other("cu.begin()\n0")
    yield other
    other.close()


Runner = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def run(emu: EmulatedCuda) -> Runner:
    """Run Python code in a fresh process on the emulated driver, with ``cu`` begun."""

    def runner(code: str, preload: bool = True, **environment: str) -> CompletedProcess[str]:
        base = plain_environment()
        if preload:
            base = emu.preload_environment(base)
            code = f"from support import Cuda\ncu = Cuda()\ncu.begin()\n{code}"
        return run_code(code, {**base, **environment}, _SUPPORT.parent)

    return runner
