"""Which device is meant, which memory it has, and what is said where there is none."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.opencl.support import KINDS, Kind
from umfpy import InvalidArgument, OpenCLProvider

Make = Callable[..., OpenCLProvider]


def test_a_device_is_found_by_index_by_name_and_by_object(any_provider: Make) -> None:
    first = any_provider(0)
    found = first.properties(first.alloc(1))
    device = found["opencl_device"]
    # One name may be that of devices of several platforms.
    name = f"{device.name.strip()!r} of {device.platform.name.strip()!r}"
    for same in (any_provider(name), any_provider(device), any_provider(name.upper())):
        assert same.device in (0, -1)
        assert same.context.devices == [device]


@pytest.mark.parametrize("wanted", [99, -1, "no such device", 1.5])
def test_an_unknown_device_is_refused_with_a_list(any_provider: Make, wanted: object) -> None:
    with pytest.raises(InvalidArgument, match=r"there are 0: '"):
        any_provider(wanted)


def test_a_name_of_several_devices_is_refused(any_provider: Make, monkeypatch) -> None:
    from umfpy.providers.opencl import devices

    device = any_provider().context.devices[0]
    with pytest.raises(InvalidArgument, match="more than one"):
        devices._by_name([device, device], device.name)


def test_auto_takes_the_best_that_the_device_reports(any_provider: Make) -> None:
    best = next(kind for kind in KINDS if kind.device == 0)
    made = any_provider(0)
    assert (made.mode, made.memory_type) == (best.mode, best.memory_type)
    # PoCL's devices, and all of OpenCL 2.0 and 3.0 with it, have more than buffers.
    if made.context.devices[0].svm_capabilities:
        assert made.mode != "buffer"


@pytest.mark.parametrize(
    ("mode", "memory_type"),
    [("usm", None), ("svm", "host"), ("buffer", "shared"), ("buffer", "host")],
)
def test_memory_that_the_device_lacks_is_refused_with_what_it_has(
    any_provider: Make, mode: str, memory_type: str | None
) -> None:
    if any(kind.device == 0 and kind.mode == mode == "usm" for kind in KINDS):
        assert any_provider(0, mode=mode).mode == "usm"
        return
    with pytest.raises(InvalidArgument, match=rf"has no {mode}.* it has .*buffer \(device\)"):
        any_provider(0, mode=mode, memory_type=memory_type)


def test_words_that_mean_nothing_are_refused(any_provider: Make) -> None:
    with pytest.raises(InvalidArgument, match="'auto', 'usm', 'svm', 'buffer'"):
        any_provider(mode="image")
    with pytest.raises(InvalidArgument, match="'device', 'shared', 'host'"):
        any_provider(memory_type="managed")


def test_a_context_of_the_users_is_used(kind: Kind) -> None:
    context = kind.provider().context
    ours = kind.provider(context=context)
    assert ours.context is context
    assert ours.queue.context == context
    by_context = OpenCLProvider(context=context, mode=kind.mode, memory_type=kind.memory_type)
    assert by_context.context.devices[0] == context.devices[0]


def test_what_the_provider_says_of_the_device(kind: Kind) -> None:
    made = kind.provider()
    device = made.context.devices[0]
    assert made.memory_type == kind.memory_type
    assert made.device == (-1 if kind.memory_type == "host" else kind.device)
    # CL_DEVICE_MEM_BASE_ADDR_ALIGN is in bits, and at least that of long16.
    assert made.granule == made.granularity() == device.mem_base_addr_align // 8
    assert made.memory_info() == (device.global_mem_size, device.global_mem_size)
    ptr = made.alloc(3000)
    assert made.memory_info()[0] == device.global_mem_size - 3000
    made.free(ptr, 3000)
    assert made.memory_info()[0] == device.global_mem_size
    assert kind.mode in repr(made)


def test_without_pyopencl_the_error_says_what_to_install() -> None:
    assert_silent(
        run_program(
            """
            import sys
            sys.modules["pyopencl"] = None  # what importing it then does: ImportError
            import umfpy
            try:
                umfpy.OpenCLProvider()
            except umfpy.DriverUnavailable as error:
                print('pip install "umfpy[opencl]"' in str(error))
            """
        ),
        "True",
    )


def test_without_a_platform_the_error_says_what_to_install(tmp_path: Path) -> None:
    program = """
import pyopencl
import umfpy
try:
    umfpy.OpenCLProvider()
except umfpy.DriverUnavailable as error:
    print("pocl-opencl-icd" in str(error))
else:
    # A platform inside of pyopencl's own folder, which no variable hides.
    print(bool(pyopencl.get_platforms()))
"""
    pytest.importorskip("pyopencl")
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "OCL_ICD_VENDORS": f"{tmp_path}/", "OCL_ICD_FILENAMES": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert_silent(done, "True")


def test_a_forked_child_is_told(any_provider: Make) -> None:
    assert_silent(
        run_program(
            """
            import os, warnings
            import umfpy
            warnings.simplefilter("ignore", DeprecationWarning)  # forking beside PoCL's threads
            provider = umfpy.OpenCLProvider()
            ptr = provider.alloc(128)
            child = os.fork()
            if not child:
                told = 0
                for call in (umfpy.OpenCLProvider, lambda: provider.alloc(128)):
                    try:
                        call()
                    except umfpy.DriverUnavailable as error:
                        told += "spawn" in str(error)
                os._exit(told)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
            provider.free(ptr, 128)
            """
        ),
        "2",
    )


@pytest.mark.parametrize("wanted", ["0", "", " ", True, None])
def test_what_is_no_device(any_provider: Make, wanted: object) -> None:
    """A number as text may be a part of some name, and was meant as an index."""
    if wanted is None:
        with pytest.raises(InvalidArgument, match=r"a pyopencl\.Context or None, not 5"):
            any_provider(wanted, context=5)
        return
    with pytest.raises(InvalidArgument, match=r"there are 0: '") as caught:
        any_provider(wanted)
    assert repr(wanted) in str(caught.value)


@pytest.mark.parametrize("wrong", [[], {}, 5, "cl"])
def test_words_are_words(any_provider: Make, wrong: object) -> None:
    for keyword in ("mode", "memory_type"):
        with pytest.raises(InvalidArgument, match=f"{keyword} must be one of "):
            any_provider(**{keyword: wrong})
