"""The suite once more: under the loader's validation layer, and without any loader."""

from __future__ import annotations

import ctypes.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.programs import run_python

HERE = Path(__file__).parent
#: What virtual memory does on every driver; of the two, Level Zero is tried here.
ON_EVERY_DRIVER = HERE.parent / "vmm" / "test_provider.py"

#: What asks the driver for everything; absence and traces need no second look at arguments.
SUITES = ["provider", "residency", "vmm", "contents", "sharing", "faults", "contract", "sycl"]

ON = {"ZE_ENABLE_VALIDATION_LAYER": "1", "ZE_ENABLE_PARAMETER_VALIDATION": "1"}

needs_layer = pytest.mark.skipif(
    ctypes.util.find_library("ze_validation_layer") is None,
    reason="no Level Zero loader with a validation layer (libze1)",
)

#: A call that the driver takes and the layer does not: a null start of a reservation.
PROBE = """
import ctypes, umfpy
umfpy.emulate("level_zero", memory="1GiB")
provider = umfpy.LevelZeroVmmProvider()
found = ctypes.c_void_p()
function = provider._driver._functions["zeVirtualMemReserve"]
answer = function(provider.context, None, 2 << 20, ctypes.byref(found))
if not answer:
    provider._driver.call("zeVirtualMemFree", provider.context, found, 2 << 20)
provider.close()
print(hex(answer))
"""


#: The driver itself answers where the loader would: also to what an older loader lacks.
WITHOUT_LOADER = """
import sys, pytest
from umfpy.providers.emulated.level_zero_library import driver_library
from umfpy.providers.level_zero import library
library.LOADER = str(driver_library())
sys.exit(pytest.main(sys.argv[1:]))
"""


def run_suites(command, tests, **variables):
    """Return how many tests passed; all of them have to, and none may be skipped."""
    done = subprocess.run(
        [sys.executable, *command, "-q", "-p", "no:cacheprovider", "-k", "level_zero", *tests],
        cwd=HERE.parents[1],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    assert "skipped" not in summary
    return int(re.match(r"(\d+) passed", summary)[1])


def suites(*names):
    return [HERE / f"test_{name}.py" for name in names]


@needs_layer
def test_the_layer_is_on():
    """Otherwise the next test would show nothing."""
    assert run_python(PROBE, env={**os.environ, **ON}) == "0x78000007"
    assert run_python(PROBE) == "0x0"


@needs_layer
def test_the_suite_without_a_complaint():
    """Every test passes, so that no call was refused which the driver alone would have taken."""
    assert run_suites(["-m", "pytest"], [*suites(*SUITES), ON_EVERY_DRIVER], **ON) > 150


def test_the_suite_without_a_loader():
    """What older loaders do not pass on is used then, such as zeMemPutIpcHandle."""
    assert run_suites(["-c", WITHOUT_LOADER], suites("contents", "sharing")) > 40
