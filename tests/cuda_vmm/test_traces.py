"""Recorded traces of real programs, replayed on virtual memory and on driver pools."""

from __future__ import annotations

import json
import statistics
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

#: Provider, how many times the modelled driver time of CudaProvider it may take, and how much
#: less of what it reserves may be in use at most: virtual memory comes in chunks.
PROVIDERS = {"cuda_vmm": (CudaVmmProvider, 4.0, 0.005), "cuda_async": (CudaAsyncProvider, 1.2, 0.0)}

pytestmark = pytest.mark.skipif(not TRACES, reason=f"../shared/traces is absent: {FOLDER}")


@pytest.fixture
def large():
    """One emulated device of 192 GiB; a test that leaves something behind on it fails."""
    emulated = emulate("cuda", memory="192GiB")
    yield emulated
    assert emulated.leaks() == {}


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name.split(".csv")[0])
def test_every_trace(path, large):
    trace = Trace.load(path)
    plain, clock = _replay(trace, CudaProvider(), large)
    for name, (make, most, less) in PROVIDERS.items():
        result, time = _replay(trace, make(), large)
        assert (result.failed, result.allocations) == (0, trace.allocations)
        assert result.utilization >= plain.utilization - less, name
        assert time <= most * clock, name


@pytest.mark.skipif(len(TRACES) < 6, reason=f"{FOLDER} has not all of the traces")
def test_virtual_memory_is_nearly_all_in_use(large):
    utilizations = [
        _replay(Trace.load(path), CudaVmmProvider(), large)[0].utilization for path in TRACES
    ]
    assert statistics.geometric_mean(utilizations) >= 0.97


@pytest.mark.parametrize(
    "path", [path for path in TRACES if path.name.startswith("gpu_")], ids=lambda path: path.name
)
def test_a_device_that_has_hardly_more_than_is_live(path):
    trace = Trace.load(path)
    small = emulate("cuda", memory=int(1.02 * trace.peak_live_bytes))
    result, _ = _replay(trace, CudaVmmProvider(), small)
    assert (result.failed, result.allocations) == (0, trace.allocations)
    assert small.leaks() == {}


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
