"""``umfpy emulate cuda -- PROGRAM``."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import umfpy  # noqa: F401 - the command must come from the umfpy under test

COMMAND = "from umfpy.cli.emulate import command; command(prog_name='umfpy emulate')"
BEGIN = "from cuda.bindings import driver as d; d.cuInit(0); "
ASK = BEGIN + "print(d.cuDeviceGetCount()[1], d.cuDeviceTotalMem(0)[1])"


@pytest.fixture
def emulate():
    def runner(*arguments):
        environment = {
            k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "UMFPY_EMULATE_CUDA")
        }
        return subprocess.run(
            [sys.executable, "-c", COMMAND, *arguments],
            env=environment,
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return runner


def test_a_program_runs_on_it(emulate):
    result = emulate("cuda", "--memory", "3GiB", "--devices", "2", "--", sys.executable, "-c", ASK)
    assert (result.returncode, result.stdout) == (0, f"2 {3 << 30}\n"), result.stderr


def test_children_of_the_program_do_too(emulate):
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASK!r}], check=True)"
    result = emulate("cuda", "--memory", "3GiB", "--", sys.executable, "-c", nested)
    assert result.stdout == f"1 {3 << 30}\n", result.stderr


def test_the_exit_status_is_the_programs(emulate):
    assert emulate("cuda", sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert emulate("cuda", "--", "no-such-program-anywhere").returncode == 127


def test_the_report(emulate):
    code = BEGIN + "d.cuCtxSetCurrent(d.cuDevicePrimaryCtxRetain(0)[1]); d.cuMemAlloc(100)"
    result = emulate("cuda", "--report", "--", sys.executable, "-c", code)
    assert result.returncode == 0
    assert "leaked 1 allocations, 100 bytes" in result.stderr
    assert "called cuMemAlloc_v2 1 times" in result.stderr
    assert "modelled time" in result.stderr


def test_mistakes_are_usage_errors(emulate):
    for wrong in (["--memory", "lots"], ["--devices", "99"], ["--capability", "new"], []):
        program = ["--", "true"] if wrong else []
        assert emulate("cuda", *wrong, *program).returncode == 2
