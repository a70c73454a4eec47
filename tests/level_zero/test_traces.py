"""Recorded traces of real programs, replayed on Level Zero memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest

from umfpy import CoarseProvider, LevelZeroProvider, LevelZeroVmmProvider, Pool, ProxyPool
from umfpy.providers.emulated import emulate
from umfpy.trace.replay import replay
from umfpy.trace.trace import Trace

FOLDER = Path(__file__).parents[3] / "shared" / "traces"
TRACES = sorted(FOLDER.glob("*.csv.gz"))

PROVIDERS = {
    "device": LevelZeroProvider,
    "shared": lambda: LevelZeroProvider(0, "shared"),
    "virtual memory": LevelZeroVmmProvider,
}
POOLS = {"default": Pool, "coarse": lambda provider: ProxyPool(CoarseProvider(provider))}

pytestmark = pytest.mark.skipif(not TRACES, reason=f"../shared/traces is absent: {FOLDER}")


@pytest.fixture
def large():
    """One emulated device of 80 GiB; a test that leaves something behind on it fails."""
    with mock.patch.dict(os.environ):
        emulated = emulate("level_zero", memory="80GiB")
        yield emulated
        assert emulated.leaks() == {}


@pytest.fixture(scope="module", params=TRACES, ids=lambda path: path.name.split(".csv")[0])
def trace(request):
    return Trace.load(request.param)


@pytest.mark.parametrize("pool_name", list(POOLS))
@pytest.mark.parametrize("kind", list(PROVIDERS))
def test_every_trace(trace, kind, pool_name, large):
    provider = PROVIDERS[kind]()
    pool = POOLS[pool_name](provider)
    result = replay(trace, pool)
    assert (result.failed, result.allocations) == (0, trace.allocations)
    assert result.peak_live_bytes == trace.peak_live_bytes
    assert result.utilization > 0.7
    pool.check("full")
    pool.close()
    if isinstance(pool, ProxyPool):
        pool.provider.close()
    assert provider.live_count() == 0
    provider.close()


@pytest.mark.parametrize("provider", ["level_zero", "level_zero_vmm"])
def test_the_command(provider):
    smallest = min(TRACES, key=lambda path: path.stat().st_size)
    command = ["replay", str(smallest), "--provider", provider, "--emulate", "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "umfpy", *command, "--repeat", "1"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (row,) = json.loads(done.stdout)
    assert (row["provider"], row["failed"]) == (provider, 0)
    assert row["allocations"] == Trace.load(smallest).allocations
    assert row["provider_allocs"] > 0
    assert row["modelled_driver_us"] > 0
