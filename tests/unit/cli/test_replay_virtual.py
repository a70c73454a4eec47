"""``umfpy replay --pool vmm``, on the trace that comes with umfpy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import resources

import pytest

from umfpy.trace import Trace

EVERYWHERE = [
    ("cuda_vmm", ["--emulate"]),
    ("cuda_vmm", ["--provider", "cuda_vmm", "--emulate"]),
    ("level_zero_vmm", ["--provider", "level_zero_vmm", "--emulate"]),
    ("host", ["--provider", "host"]),
]


@pytest.fixture(scope="module")
def shipped():
    with resources.as_file(resources.files("umfpy.trace") / "data" / "training.csv.gz") as path:
        yield path


@pytest.mark.parametrize(("provider", "target"), EVERYWHERE)
def test_json(json_of, shipped, provider, target):
    (row,) = json_of("replay", shipped, "--pool", "vmm", *target, "--json", "--repeat", 1)
    trace = Trace.load(shipped)
    assert (row["provider"], row["pool"], row["failed"]) == (provider, "vmm", 0)
    assert (row["allocations"], row["frees"]) == (trace.allocations, trace.frees)
    assert row["peak_live_bytes"] == trace.peak_live_bytes
    assert 0.95 <= row["utilization"] <= 1
    assert row["provider_allocs"] > 0
    assert (row["modelled_driver_us"] is None) is (provider == "host")


def test_a_table_for_people(umfpy_command, shipped):
    done = umfpy_command("replay", shipped, "--pool", "vmm", "--emulate", "--repeat", 1)
    assert "vmm pool, cuda_vmm memory" in done.stdout
    assert "training" in done.stdout
    assert "modelled" in done.stdout
    done = umfpy_command("replay", shipped, "--pool", "vmm", "--provider", "host", "--repeat", 1)
    assert "vmm pool, host memory" in done.stdout
    assert done.stderr == ""


def test_the_default_pool_over_such_memory_is_the_same(json_of, shipped):
    arguments = ["--provider", "cuda_vmm", "--emulate", "--json", "--repeat", 1]
    rows = [
        json_of("replay", shipped, "--pool", pool, *arguments)[0] for pool in ("vmm", "default")
    ]
    same = ("peak_reserved_bytes", "provider_allocs", "provider_frees", "modelled_driver_us")
    assert [rows[0][key] for key in same] == [rows[1][key] for key in same]


def test_hardly_more_memory_than_is_live(json_of, shipped):
    """A pool that takes whole allocations of the driver needs more."""
    memory = Trace.load(shipped).peak_live_bytes * 102 // 100
    arguments = ["replay", shipped, "--emulate", "--memory", memory, "--json", "--repeat", 1]
    (row,) = json_of(*arguments, "--pool", "vmm")
    assert row["failed"] == 0
    assert row["peak_reserved_bytes"] <= memory
    (plain,) = json_of(*arguments, "--pool", "default", status=1)
    assert plain["failed"] > 0


@pytest.mark.parametrize("target", [["--emulate"], ["--provider", "host"]])
def test_where_memory_runs_out_the_count_says_so(umfpy_command, shipped, target):
    memory = 64 << 20
    arguments = ["replay", shipped, "--pool", "vmm", *target, "--memory", memory, "--json"]
    done = umfpy_command(*arguments, "--repeat", 1, status=1)
    (row,) = json.loads(done.stdout)
    assert row["failed"] > 0
    assert row["peak_reserved_bytes"] <= memory
    assert "found no memory" in done.stderr


@pytest.mark.parametrize("provider", ["cuda", "cuda_async", "level_zero", "opencl"])
def test_memory_that_is_one_with_its_addresses(umfpy_command, shipped, provider):
    """It is refused in words of the command line, before any driver is looked for."""
    done = umfpy_command("replay", shipped, "--pool", "vmm", "--provider", provider, status=2)
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1] == (
        "Error: --pool vmm needs virtual memory, which --provider "
        f"{provider} has not; choose cuda_vmm, level_zero_vmm or host"
    )


def test_which_providers_have_virtual_memory():
    """What the table says is what the providers say."""
    program = """
import umfpy
from umfpy.cli.tables import PROVIDERS
from umfpy.provider import Capability

umfpy.emulate("cuda", force=True)
umfpy.emulate("level_zero", force=True)
for name, choice in PROVIDERS.items():
    if name != "opencl":  # no emulated driver; it never has
        assert choice.virtual is (Capability.RESERVE in choice.make().capabilities), name
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_no_gpu_and_no_emulation_is_an_error_with_the_remedy(umfpy_command, shipped):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    done = umfpy_command("replay", shipped, "--pool", "vmm", status=1)
    assert done.stdout == ""
    assert "--emulate" in done.stderr
