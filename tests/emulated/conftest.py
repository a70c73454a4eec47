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
from umfpy.providers.emulated import EmulatedCuda

_HERE = Path(__file__).parent


def _load_support() -> Any:
    spec = importlib.util.spec_from_file_location("emulated_support", _HERE / "support.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_support = _load_support()


@pytest.fixture
def emu() -> Iterator[EmulatedCuda]:
    """Two devices of 1 GiB; what a test leaves behind fails it."""
    emulated = umfpy.emulate("cuda", memory="1GiB", devices=2, children=False, force=True)
    yield emulated
    emulated.clear_faults()
    assert emulated.leaks() == {}


@pytest.fixture
def cu(emu: EmulatedCuda) -> Iterator[Any]:
    """Calls, with the primary context of device 0 current and the thread's stack as it was."""
    cuda = _support.Cuda()
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
def peer(emu: EmulatedCuda) -> Iterator[Any]:
    """A second process, with its own context current."""
    other = _support.Peer(emu.preload_environment())
    other("cu.begin()\n0")
    yield other
    other.close()


Runner = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(emu: EmulatedCuda) -> Runner:
    """Run Python code in a fresh process on the emulated driver, with ``cu`` begun."""

    def runner(code: str, preload: bool = True, **environment: str) -> Any:
        base = {
            k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "UMFPY_EMULATE_CUDA")
        }
        if preload:
            base = emu.preload_environment(base)
            code = f"from support import Cuda\ncu = Cuda()\ncu.begin()\n{code}"
        base.update(environment)
        return subprocess.run(
            [sys.executable, "-c", code],
            env=base,
            cwd=_HERE,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return runner
