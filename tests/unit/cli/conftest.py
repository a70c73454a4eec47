from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from umfpy.cli import main
from umfpy.trace import TraceWriter
from umfpy.trace.workload import training

TRACES = Path(__file__).resolve().parents[4] / "shared" / "traces"


@pytest.fixture
def invoke():
    """Run a command in this process."""
    return lambda *arguments: CliRunner().invoke(main, [str(a) for a in arguments])


@pytest.fixture(scope="session")
def umfpy_command():
    """Run a command in a process of its own: an emulated driver stays in the process it is in.

    The process sees no driver but what it loads itself; returns what `subprocess.run` does.
    """

    def run(*arguments, status=0, **environment):
        inherited = {k: v for k, v in os.environ.items() if k not in _DRIVER_VARIABLES}
        done = subprocess.run(
            [sys.executable, "-m", "umfpy", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**inherited, **environment},
        )
        assert done.returncode == status, done.stderr
        assert "Traceback" not in done.stderr
        return done

    return run


#: What another test in this process may have set for its children.
_DRIVER_VARIABLES = ("LD_PRELOAD", "UMFPY_EMULATE_CUDA")


@pytest.fixture
def json_of(umfpy_command):
    """The JSON that a command prints."""

    def run(*arguments, status=0, **environment):
        return json.loads(umfpy_command(*arguments, status=status, **environment).stdout)

    return run


@pytest.fixture(scope="session")
def small_trace(tmp_path_factory):
    """A small trace file."""
    path = tmp_path_factory.mktemp("traces") / "small.csv.gz"
    with TraceWriter(path, {"torch_peak_reserved": 400 << 20}) as writer:
        writer.write(training(steps=3, layers=3, hidden=512))
    return path


@pytest.fixture(scope="session")
def real_traces():
    """The recorded traces that lie beside the repository."""
    if not TRACES.is_dir():
        pytest.skip(f"../shared/traces is absent: {TRACES}")
    return sorted(TRACES.glob("*.csv.gz"))
