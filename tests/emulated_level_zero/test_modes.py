"""The same rules, with the loader's validation layer on, and without any loader."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RULES = ["driver", "memory", "ipc", "vmm", "lists", "events", "control", "processes"]


def _run_rules(**environment):
    files = [str(HERE / f"test_{name}.py") for name in RULES]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *files],
        cwd=HERE.parents[1],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def _needs_loader(emu):
    if not emu.has_loader:
        pytest.skip("no Level Zero loader: install Debian's libze1")


VALIDATION = {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}


def test_with_the_validation_layer(emu):
    _needs_loader(emu)
    result = _run_rules(**VALIDATION)
    assert result.returncode == 0, result.stdout[-3000:]


def test_the_validation_layer_is_really_there(emu, run):
    """It refuses a missing pointer itself, so that the driver never sees the call."""
    _needs_loader(emu)
    code = """
import umfpy
emulated = umfpy.emulate("level_zero", force=True)
ze = Ze().begin()
assert ze.error("zeMemFree", ze.context, None) == INVALID_NULL_POINTER
print(emulated.calls["zeMemFree"])
"""
    assert run(code, begin=False, **VALIDATION).stdout == "0\n"
    assert run(code, begin=False).stdout == "1\n"


def test_a_loader_that_wraps_every_handle(emu, run):
    """As it does where there are several drivers."""
    _needs_loader(emu)
    code = """
ptr, host = ze.alloc(1000), ze.alloc_host(10)
assert ze.properties(ptr)[0] == DEVICE and ze.properties(host)[3] is None
ze.write(ptr, b"wrapped")
opened = ze.open(ze.export(ptr), device=1)
assert ze.read(opened, 7) == b"wrapped"
ze.close(opened)
pool = ze.get("zeEventPoolCreate", ze.context, PoolDesc(count=1), 0, None)
event = ze.get("zeEventCreate", pool, EventDesc())
made = ze.immediate(mode=2)
arguments = ptr, bytes(1), 1, 1000, event, 0, None
ze("zeCommandListAppendMemoryFill", made, *arguments)
ze("zeEventHostSynchronize", event, FOREVER)
start = ze.get("zeVirtualMemReserve", ze.context, 1, 2 << 20)
ze("zeVirtualMemFree", ze.context, start, 2 << 20)
ze.free(ptr, host)
for name, handle in (("Event", event), ("EventPool", pool), ("CommandList", made)):
    ze(f"ze{name}Destroy", handle)
ze.end()
"""
    settings = "memory=1073741824;devices=2;report=1"
    wraps = {"ZE_ENABLE_LOADER_INTERCEPT": "1", "UMFPY_EMULATE_LEVEL_ZERO": settings}
    result = run(code, **wraps)
    assert result.returncode == 0, result.stderr
    assert "nothing leaked" in result.stderr


def test_without_a_loader(emu):
    """Preloaded, the driver is what the loader's name means."""
    result = _run_rules(LD_PRELOAD=str(emu.library))
    assert result.returncode == 0, result.stdout[-3000:]


def test_without_a_loader_the_driver_stands_in_for_it(emu, run):
    code = """
loader = ctypes.CDLL(LOADER)
print(hasattr(loader, "umfpyEmuConfigure"), loader._name == LOADER)
"""
    result = run(code, LD_PRELOAD=str(emu.library))
    assert result.stdout == "True True\n", result.stderr
    if emu.has_loader:
        assert not hasattr(ctypes.CDLL("libze_loader.so.1"), "umfpyEmuConfigure")


def test_emulate_makes_it_stand_in_where_there_is_no_loader(emu, run):
    """In a process that cannot find the loader, as if it were not installed."""
    code = """
import ctypes
import umfpy
from umfpy.providers.emulated import level_zero_library
level_zero_library.LOADER = "libze_loader_of_another_name.so.1"
emulated = umfpy.emulate("level_zero", memory="1GiB", force=True, children=False)
ze = Ze().begin()
print(emulated.has_loader, emulated.calls["zeContextCreate"], "LD_PRELOAD" in
      emulated.preload_environment({}))
"""
    result = run(code, begin=False, emulated=False)
    assert result.stdout == "False 1 True\n", result.stderr
