"""``umfpy doctor``: with a GPU, without one, and with things missing or broken."""

from __future__ import annotations

import json
import os
import pkgutil
import subprocess
import sys
from importlib import metadata

import pytest

import umfpy
from umfpy.cli import checks
from umfpy.cli.checks import Finding, State, cuda, cupy, emulated, level_zero, opencl, system


def test_without_a_gpu_nothing_is_wrong(json_of):
    report = json_of("doctor", "--json")
    assert report["umfpy"] == umfpy.__version__
    assert report["ok"] is True
    states = {finding["subject"]: finding["state"] for finding in report["findings"]}
    assert list(states) == [
        "umfpy",
        "CUDA",
        "emulated CUDA",
        "Level Zero",
        "emulated Level Zero",
        "OpenCL",
        "CuPy",
    ]
    assert states["umfpy"] == states["emulated CUDA"] == states["emulated Level Zero"] == "ok"


def test_what_is_absent_comes_with_advice(json_of):
    for finding in json_of("doctor", "--json")["findings"]:
        if finding["state"] == "absent":
            assert finding["advice"] or "install" in finding["summary"]


def test_emulated_devices_are_listed(umfpy_command):
    done = umfpy_command(
        *("emulate", "cuda", "--memory", "3GiB", "--devices", "2", "--force", "--"),
        *("umfpy", "doctor", "--json"),
        PATH=os.pathsep.join([_scripts(), os.environ["PATH"]]),
    )
    (finding,) = (f for f in json.loads(done.stdout)["findings"] if f["subject"] == "CUDA")
    assert finding["state"] == "ok"
    assert finding["summary"] == "2 emulated devices"
    assert finding["facts"]["emulated"] is True
    assert finding["facts"]["cuda_bindings"] == metadata.version("cuda-bindings")
    first, second = finding["facts"]["devices"]
    assert (first["ordinal"], second["ordinal"]) == (0, 1)
    assert first["uuid"] != second["uuid"]
    assert first["total_bytes"] == 3 << 30
    assert first["granularity_bytes"] == 2 << 20


def _scripts():
    import sysconfig

    return sysconfig.get_path("scripts")


def test_words_for_people(umfpy_command):
    done = umfpy_command("doctor")
    assert "umfpy: the core works" in done.stdout
    assert "page: " in done.stdout
    assert done.stderr == ""
    assert "\x1b" not in done.stdout


def test_a_problem_is_1(invoke, monkeypatch):
    broken = Finding("CUDA", State.PROBLEM, "it is [on fire]", {"speed": 9}, "call for help")
    monkeypatch.setattr("umfpy.cli.doctor.CHECKS", (lambda: broken,))
    result = invoke("doctor")
    assert result.exit_code == 1
    assert "it is [on fire]" in result.stdout
    assert "call for help" in result.stdout
    report = invoke("doctor", "--json")
    assert report.exit_code == 1
    assert json.loads(report.stdout)["ok"] is False


# What a machine may lack, one at a time.


def _missing(monkeypatch, module, *names):
    def version(name):
        return None if name in names else "1.2.3"

    monkeypatch.setattr(module, "installed_version", version)


def _no_library(name):
    raise OSError(f"{name}: cannot open shared object file")


class _Driver:
    """A CUDA driver library of which only the version is asked."""

    def __init__(self, version):
        self._version = version

    def cuDriverGetVersion(self, pointer):
        pointer._obj.value = self._version
        return 0


@pytest.mark.parametrize(("gpu", "state"), [(False, State.ABSENT), (True, State.PROBLEM)])
def test_no_driver_and_no_binding(monkeypatch, gpu, state):
    _missing(monkeypatch, cuda, "cuda-bindings")
    monkeypatch.setattr(cuda.ctypes, "CDLL", _no_library)
    monkeypatch.setattr(cuda, "has_gpu", lambda: gpu)
    finding = cuda.check()
    assert finding.state == state
    assert "umfpy[cuda13]" in finding.advice


@pytest.mark.parametrize(("version", "extra"), [(13020, "cuda13"), (12080, "cuda12")])
def test_a_driver_without_a_binding_names_the_extra_that_fits(monkeypatch, version, extra):
    _missing(monkeypatch, cuda, "cuda-bindings")
    monkeypatch.setattr(cuda.ctypes, "CDLL", lambda name: _Driver(version))
    finding = cuda.check()
    assert finding.state == State.PROBLEM
    assert f"umfpy[{extra}]" in finding.advice
    assert finding.facts["driver_version"] == f"{version // 1000}.{version % 1000 // 10}"


@pytest.mark.parametrize(("gpu", "state"), [(False, State.ABSENT), (True, State.PROBLEM)])
def test_a_driver_that_does_not_start(monkeypatch, gpu, state):
    def unavailable():
        raise umfpy.DriverUnavailable("cuInit failed with CUDA_ERROR_UNKNOWN (999)")

    monkeypatch.setattr(cuda, "CudaDriver", unavailable)
    monkeypatch.setattr(cuda, "has_gpu", lambda: gpu)
    assert cuda.check().state == state


def test_a_driver_call_that_fails(monkeypatch):
    class Failing:
        def call(self, name, *arguments):
            raise umfpy.DriverError(name, 999, "CUDA_ERROR_UNKNOWN", "unknown error")

    monkeypatch.setattr(cuda, "CudaDriver", Failing)
    finding = cuda.check()
    assert finding.state == State.PROBLEM
    assert "CUDA_ERROR_UNKNOWN" in finding.summary


def test_no_level_zero_loader(monkeypatch):
    def unavailable():
        raise umfpy.DriverUnavailable("no Level Zero loader; install it")

    monkeypatch.setattr(level_zero, "LevelZeroDriver", unavailable)
    finding = level_zero.check()
    assert finding.state == State.ABSENT
    assert "install" in finding.summary


def test_a_level_zero_call_that_fails(monkeypatch):
    class Failing:
        def handles(self, name, *parents):
            raise umfpy.DriverError(name, 0x70000001, "ZE_RESULT_ERROR_DEVICE_LOST")

    monkeypatch.setattr(level_zero, "LevelZeroDriver", Failing)
    finding = level_zero.check()
    assert finding.state == State.PROBLEM
    assert "ZE_RESULT_ERROR_DEVICE_LOST" in finding.summary
    assert "xpu-smi" in finding.advice  # clinfo knows nothing of Level Zero
    assert "clinfo" not in finding.advice


def test_emulated_level_zero_devices_are_listed():
    program = """
import json, umfpy
umfpy.emulate("level_zero", memory="3GiB", devices=2)
from umfpy.cli.checks import level_zero
import dataclasses
print(json.dumps(dataclasses.asdict(level_zero.check())))
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )
    finding = json.loads(done.stdout)
    assert (finding["state"], finding["summary"]) == ("ok", "2 devices")
    assert finding["facts"]["drivers"] == 1
    for index, device in enumerate(finding["facts"]["devices"]):
        assert device["index"] == index
        assert device["total_bytes"] == 3 << 30
        assert device["granularity_bytes"] >= 4096


def test_no_pyopencl(monkeypatch):
    _missing(monkeypatch, opencl, "pyopencl")
    finding = opencl.check()
    assert finding.state == State.ABSENT
    assert "umfpy[opencl]" in finding.advice


class _OpenCL:
    """pyopencl, with platforms or without."""

    class Error(Exception):
        pass

    def __init__(self, platforms=None):
        self._platforms = platforms

    def get_platforms(self):
        if self._platforms is None:
            raise self.Error("clGetPlatformIDs failed: PLATFORM_NOT_FOUND_KHR")
        return self._platforms


class _Platform:
    name = "a platform"

    def get_devices(self):
        return [self]

    # of its only device
    version = "OpenCL 3.0 "
    global_mem_size = 1 << 30
    mem_base_addr_align = 1024

    @property
    def platform(self):
        return self


@pytest.mark.parametrize(
    ("platforms", "state"),
    [(None, State.ABSENT), ([], State.ABSENT), ([_Platform()], State.OK)],
)
def test_opencl_platforms(monkeypatch, platforms, state):
    _missing(monkeypatch, opencl)
    monkeypatch.setattr(opencl.importlib, "import_module", lambda name: _OpenCL(platforms))
    finding = opencl.check()
    assert finding.state == state
    if state == State.OK:
        assert finding.facts["devices"][0]["sub_buffer_alignment_bytes"] == 128
    else:
        assert "pocl" in finding.advice


def test_a_pyopencl_that_does_not_load(monkeypatch):
    def broken(name):
        raise ImportError("libOpenCL.so.1: cannot open shared object file")

    _missing(monkeypatch, opencl)
    monkeypatch.setattr(opencl.importlib, "import_module", broken)
    assert opencl.check().state == State.PROBLEM


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([], State.ABSENT),
        (["cupy-cuda13x"], State.OK),
        (["cupy-cuda13x", "cupy-cuda12x"], State.PROBLEM),
    ],
)
def test_cupy(monkeypatch, found, state):
    monkeypatch.setattr(cupy, "installed_version", lambda name: "14.0" if name in found else None)
    finding = cupy.check()
    assert finding.state == state
    if state != State.OK:
        assert "pip" in finding.advice


@pytest.mark.parametrize(
    ("library", "check"), [("cuda_library", "check_cuda"), ("driver_library", "check_level_zero")]
)
def test_an_emulated_driver_that_was_not_built(monkeypatch, library, check):
    def missing():
        raise umfpy.DriverUnavailable("the emulated driver is not built: reinstall umfpy")

    assert getattr(emulated, check)().state == State.OK
    monkeypatch.setattr(emulated, library, missing)
    assert getattr(emulated, check)().state == State.PROBLEM


def test_a_core_that_does_not_work(monkeypatch):
    def broken():
        raise umfpy.OutOfMemoryError("mmap failed")

    monkeypatch.setattr(system, "HostProvider", broken)
    finding = system.check()
    assert finding.state == State.PROBLEM
    assert "mmap failed" in finding.summary


def test_every_check_is_run():
    modules = {module for _, module, _ in pkgutil.iter_modules(checks.__path__)} - {"finding"}
    assert {check.__module__.rpartition(".")[2] for check in checks.CHECKS} == modules
    assert len(set(checks.CHECKS)) == len(checks.CHECKS) == 7
