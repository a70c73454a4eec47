"""``umfpy emulate level_zero -- PROGRAM``."""

import subprocess
import sys
from pathlib import Path

import pytest

from umfpy.providers.emulated import level_zero_library

COMMAND = "from umfpy.cli.emulate import command; command(prog_name='umfpy emulate')"
ASK = (
    "from support import *; ze = Ze().begin(); "
    "m, = ze.all('zeDeviceGetMemoryProperties', ze.devices[0], kind=MemoryProperties); "
    "print(len(ze.devices), m.totalSize)"
)


@pytest.fixture
def emulate():
    def runner(*arguments):
        return subprocess.run(
            [sys.executable, "-c", COMMAND, "level_zero", "--force", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return runner


def test_a_program_runs_on_it_and_so_do_its_children(emulate):
    options = "--memory", "3GiB", "--devices", "2", "--", sys.executable, "-c"
    result = emulate(*options, ASK)
    assert (result.returncode, result.stdout) == (0, f"2 {3 << 30}\n"), result.stderr
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {ASK!r}], check=True)"
    assert emulate(*options, nested).stdout == f"2 {3 << 30}\n"


def test_the_exit_status_is_the_programs(emulate):
    assert emulate(sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert emulate("--", "no-such-program-anywhere").returncode == 127


def test_the_report(emulate):
    code = "from support import *; ze = Ze().begin(); ze.alloc(100); ze.immediate()"
    result = emulate("--report", "--", sys.executable, "-c", code)
    assert result.returncode == 0
    assert "leaked 1 allocations, 100 bytes" in result.stderr
    assert "leaked 1 lists" in result.stderr
    assert "called zeMemAllocDevice 1 times" in result.stderr
    assert "modelled time" in result.stderr


def test_mistakes_are_usage_errors(emulate):
    for wrong in (["--memory", "lots"], ["--devices", "99"], ["--capability", "9.0"], []):
        program = ["--", "true"] if wrong else []
        assert emulate(*wrong, *program).returncode == 2


def test_a_library_that_is_not_built(monkeypatch, tmp_path):
    from umfpy.errors import DriverUnavailable

    monkeypatch.setattr(level_zero_library, "_HERE", tmp_path)
    with pytest.raises(DriverUnavailable, match="is not built"):
        level_zero_library.driver_library()
