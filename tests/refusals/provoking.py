"""Tests that break rules of drivers: ``test_refusals.py`` runs them.

It is right of those called ``test_right...`` to do so; the others have to fail for it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

import umfpy
from umfpy.manager.cuda_calls import CudaCalls
from umfpy.providers.level_zero.constants import Result

BAD = 0xBAD000
INVALID_VALUE, UNKNOWN = 1, 999


def free_nothing(provider: umfpy.CudaProvider) -> None:
    """Give the driver back what it never gave: CUDA_ERROR_INVALID_VALUE."""
    with pytest.raises(umfpy.DriverError), provider._context:
        provider._driver.call("cuMemFree", BAD)


@pytest.fixture
def emu() -> umfpy.EmulatedCuda:
    return umfpy.emulate("cuda", memory="1GiB")


@pytest.fixture
def cuda(emu: umfpy.EmulatedCuda) -> umfpy.CudaProvider:
    return umfpy.CudaProvider()


@pytest.fixture(scope="module")
def late() -> Iterator[umfpy.CudaProvider]:
    umfpy.emulate("cuda", memory="1GiB")
    provider = umfpy.CudaProvider()
    yield provider
    free_nothing(provider)


PROGRAM = """
import umfpy
umfpy.emulate("cuda", memory="1GiB")
provider = umfpy.CudaProvider()
with provider._context:
    try: provider._driver.call("cuMemFree", 0xBAD000)
    except umfpy.DriverError: pass
"""


def test_wrong_in_a_forked_process():
    """The first one: what is forked after CUDA was initialised cannot use it."""
    child = os.fork()
    if not child:
        try:
            exec(PROGRAM, {})
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_wrong(cuda):
    free_nothing(cuda)


@pytest.mark.refuses("cuMemFree", INVALID_VALUE)
def test_right_it_is_announced(cuda):
    free_nothing(cuda)


def test_right_it_is_announced_inside(cuda, request):
    request.applymarker(pytest.mark.refuses("cuMemFree", INVALID_VALUE))
    free_nothing(cuda)


@pytest.mark.refuses("cuMemFree", UNKNOWN)
def test_wrong_another_answer_is_announced(cuda):
    free_nothing(cuda)


@pytest.mark.refuses("cuMemFree", INVALID_VALUE)
def test_wrong_it_does_not_happen(cuda):
    cuda.free(cuda.alloc(512), 512)


def test_right_memory_is_short(cuda):
    with pytest.raises(umfpy.OutOfMemoryError):
        cuda.alloc(2 << 30)


@pytest.mark.parametrize("name", ["cuMemFree_v2", "*"])
def test_right_it_is_ordered(cuda, emu, name):
    ptr = cuda.alloc(512)
    with cuda._context:
        emu.fail(name, error=INVALID_VALUE)
        with pytest.raises(umfpy.DriverError):
            cuda._driver.call("cuMemFree", ptr)
    cuda.free(ptr, 512)


def test_wrong_it_is_ordered_once_and_happens_twice(cuda, emu):
    emu.fail("cuMemFree_v2", error=INVALID_VALUE)
    free_nothing(cuda)
    free_nothing(cuda)


def test_wrong_what_was_ordered_is_dropped(cuda, emu):
    emu.fail("cuMemFree_v2", nth=5, error=INVALID_VALUE)
    emu.clear_faults()
    free_nothing(cuda)


def test_wrong_a_manager_asks(cuda):
    with pytest.raises(umfpy.DriverError):
        CudaCalls()("cuGraphDestroy", 0)


def test_wrong_level_zero(monkeypatch):
    for name in ("ZE_ENABLE_ALT_DRIVERS", "UMFPY_EMULATE_LEVEL_ZERO"):
        monkeypatch.setenv(name, "")  # which emulate sets, and the end of the test takes back
    umfpy.emulate("level_zero", memory="1GiB")
    provider = umfpy.LevelZeroProvider()
    with pytest.raises(umfpy.DriverError):
        provider._driver.call("zeMemFree", provider.context, BAD)
    provider.close()


@pytest.mark.refuses("zeMemFree", Result.ZE_RESULT_ERROR_INVALID_ARGUMENT)
def test_right_level_zero_is_announced(monkeypatch):
    test_wrong_level_zero(monkeypatch)


def test_wrong_in_a_process_of_its_own():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


@pytest.mark.refuses("cuMemFree", INVALID_VALUE)
def test_right_it_is_announced_of_another_process():
    subprocess.run([sys.executable, "-c", PROGRAM], check=True, timeout=60)


def test_wrong_when_fixtures_are_taken_down(late):
    """The last one of the module."""
