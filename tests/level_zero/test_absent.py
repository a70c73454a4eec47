"""What is missing or cannot work is said in words: loader, driver, device, and after fork."""

from __future__ import annotations

import ctypes.util
import os

import null_driver
import pytest

from tests.fakes.programs import run_python
from umfpy.errors import DriverUnavailable
from umfpy.providers.emulated import emulate
from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider, library

ASK = """
import umfpy
try:
    provider = umfpy.LevelZeroProvider()
    print("made", provider.alloc(4096))
except umfpy.UmfpyError as error:
    print(type(error).__name__, error)
"""

needs_loader = pytest.mark.skipif(
    ctypes.util.find_library("ze_loader") is None, reason="no Level Zero loader (libze1)"
)
needs_null_driver = pytest.mark.skipif(
    not null_driver.POSSIBLE, reason="no Level Zero loader headers (libze-dev), or no C compiler"
)


def environment(**variables):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("ZE_", "UMFPY_EMULATE"))}
    return {**kept, **variables}


@pytest.fixture(scope="module")
def null(tmp_path_factory):
    return str(null_driver.build(tmp_path_factory.mktemp("null")))


def test_no_loader():
    program = (
        "from umfpy.providers.level_zero import library\n"
        "library.LOADER = 'libze_no_such_loader.so.1'\n" + ASK
    )
    answer = run_python(program, env=environment())
    assert answer.startswith("DriverUnavailable no Level Zero loader, libze_no_such_loader.so.1")
    assert "libze1" in answer
    assert "umfpy.emulate" in answer


def test_a_loader_that_is_too_old():
    class Old:
        def __getattr__(self, name):
            if name == "zeVirtualMemReserve":
                raise AttributeError(name)
            return lambda *arguments: 0

    with pytest.raises(DriverUnavailable, match="has no zeVirtualMemReserve"):
        library._declare(Old())


@needs_loader
def test_a_loader_without_drivers():
    for _ in range(2):
        answer = run_python(ASK, env=environment(ZE_ENABLE_ALT_DRIVERS="/nowhere/driver.so"))
        assert answer.startswith("DriverUnavailable Level Zero's loader finds no driver")
        assert "libze-intel-gpu1) and start this program again" in answer
        assert "umfpy emulate level_zero -- PROGRAM" in answer


@needs_loader
def test_an_attempt_that_failed_fails_again_in_the_same_words():
    """The loader looks once; asking it a second time must not end in something else."""
    answers = run_python(ASK + ASK, env=environment(ZE_ENABLE_ALT_DRIVERS="/nowhere/driver.so"))
    first, second = answers.splitlines()
    assert first == second


def test_a_driver_without_devices(emu):
    words = "has 1 driver but no device; look at ZE_AFFINITY_MASK"
    emulate("level_zero", devices=0)
    for provider in (LevelZeroProvider, LevelZeroVmmProvider):
        with pytest.raises(DriverUnavailable, match=words):
            provider()
    program = "import umfpy\numfpy.emulate('level_zero', devices=0)\n" + ASK
    assert words in run_python(program, env=environment())


@needs_loader
@needs_null_driver
@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"NULL_DEVICES": "0"}, "DriverUnavailable Level Zero has 1 driver but no device;"),
        ({"NULL_TALKS": "0"}, "but no device that says anything of itself (a null driver?)"),
        ({}, "DriverError zeMemAllocDevice failed with ZE_RESULT_SUCCESS (0): nothing came"),
    ],
    ids=["no devices", "silent device", "memory that is none"],
)
def test_a_driver_that_does_nothing(null, variables, words):
    answer = run_python(ASK, env=environment(ZE_ENABLE_ALT_DRIVERS=null, **variables))
    assert words in answer


FORKED = """
import os, warnings
warnings.simplefilter("ignore")  # Python warns of fork() beside threads, of the driver's too.
import umfpy
umfpy.emulate("level_zero", memory="1GiB")
p = umfpy.LevelZeroProvider(); ptr = p.alloc(4096); v = umfpy.LevelZeroVmmProvider()
p.zero(ptr, 4096)
pid = os.fork()
if pid == 0:
    refused = 0
    for call in (lambda: p.alloc(4096), lambda: p.free(ptr, 4096), lambda: p.zero(ptr, 8),
                 umfpy.LevelZeroProvider, lambda: p.properties(ptr), lambda: v.alloc(4096),
                 lambda: p.ipc_export(ptr, 4096)):
        try: call()
        except umfpy.DriverUnavailable as error: refused += "spawn" in str(error)
    os._exit(refused)
_, status = os.waitpid(pid, 0)
p.free(ptr, 4096)
p.close()
v.close()
print(os.waitstatus_to_exitcode(status))
"""


def test_a_forked_child_is_told_to_spawn():
    assert run_python(FORKED) == "7"


def test_a_fork_before_level_zero_is_used_is_fine():
    program = """
import os, umfpy
umfpy.emulate("level_zero", memory="1GiB")
import umfpy.providers.level_zero
pid = os.fork()
if pid == 0:
    p = umfpy.LevelZeroProvider(); p.free(p.alloc(4096), 4096); p.close()
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""
    assert run_python(program) == "3"


def test_exit_with_live_memory_is_silent():
    program = """
import umfpy
umfpy.emulate("level_zero", memory="1GiB")
p = umfpy.LevelZeroProvider(); p.zero(p.alloc(4096), 4096)
v = umfpy.LevelZeroVmmProvider(); v.alloc(4096)
print('done')
"""
    assert run_python(program) == "done"
