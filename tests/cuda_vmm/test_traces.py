"""Recorded traces of real programs, replayed on virtual memory and on driver pools."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from umfpy import CudaAsyncProvider, CudaProvider, CudaVmmProvider, Pool
from umfpy.providers.emulated import emulate
from umfpy.trace.replay import replay
from umfpy.trace.trace import Trace

FOLDER = Path(__file__).parents[3] / "shared" / "traces"
TRACES = sorted(FOLDER.glob("*.csv.gz"))

#: Provider, and how many times the modelled driver time of CudaProvider it may take.
PROVIDERS = {"cuda_vmm": (CudaVmmProvider, 4.5), "cuda_async": (CudaAsyncProvider, 1.2)}

pytestmark = pytest.mark.skipif(not TRACES, reason=f"../shared/traces is absent: {FOLDER}")


@pytest.fixture
def large(refused):
    """One emulated device of 80 GiB; a test that leaves something behind on it fails."""
    emulated = emulate("cuda", memory="80GiB")
    yield emulated
    assert emulated.leaks() == {}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".csv")[0])
def test_every_trace(path, large):
    trace = Trace.load(path)
    plain, clock = _replay(trace, CudaProvider(), large)
    for name, (make, most) in PROVIDERS.items():
        result, time = _replay(trace, make(), large)
        assert (result.failed, result.allocations) == (0, trace.allocations)
        assert result.utilization >= plain.utilization
        assert time <= most * clock, name


def _replay(trace, provider, emu):
    emu.reset_clock()
    pool = Pool(provider)
    result = replay(trace, pool)
    clock = emu.clock_us
    pool.check("full")
    pool.close()
    assert provider.live_count() == 0
    provider.close()
    return result, clock


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_the_command(name):
    smallest = min(TRACES, key=lambda path: path.stat().st_size)
    command = ["replay", str(smallest), "--provider", name, "--emulate", "--json", "--repeat", "1"]
    done = subprocess.run(
        [sys.executable, "-m", "umfpy", *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (row,) = json.loads(done.stdout)
    assert (row["provider"], row["failed"]) == (name, 0)
    assert row["allocations"] == Trace.load(smallest).allocations
    assert row["modelled_driver_us"] > 0
