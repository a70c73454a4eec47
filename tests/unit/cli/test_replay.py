"""``umfpy replay``."""

from __future__ import annotations

import gzip
import json
import os
import pty
import subprocess
import sys

import pytest

from umfpy.cli.tables import POOLS as ALL_POOLS
from umfpy.trace import Trace

KEYS = [
    "trace",
    "provider",
    "pool",
    "allocations",
    "frees",
    "peak_live_bytes",
    "peak_reserved_bytes",
    "utilization",
    "provider_allocs",
    "provider_frees",
    "ns_per_op",
    "modelled_driver_us",
    "failed",
]
POOLS = ["default", "coarse", "proxy"]


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("target", [["--provider", "host"], ["--emulate"]])
def test_json_has_exactly_these_keys(json_of, small_trace, target, pool):
    (row,) = json_of("replay", small_trace, *target, "--pool", pool, "--json", "--repeat", 1)
    trace = Trace.load(small_trace)
    assert list(row) == KEYS
    assert row["trace"] == str(small_trace)
    assert row["provider"] == ("host" if "host" in target else "cuda")
    assert row["pool"] == pool
    assert (row["allocations"], row["frees"]) == (trace.allocations, trace.frees)
    assert row["peak_live_bytes"] == trace.peak_live_bytes
    assert row["utilization"] == row["peak_live_bytes"] / row["peak_reserved_bytes"] <= 1
    assert row["failed"] == 0
    assert row["ns_per_op"] > 0
    if "--emulate" in target:
        assert row["modelled_driver_us"] > 0
    else:
        assert row["modelled_driver_us"] is None
    if pool == "proxy":
        assert row["provider_allocs"] == trace.allocations
        assert row["provider_frees"] == trace.frees


@pytest.mark.parametrize("pool", ALL_POOLS)
def test_every_pool_serves_a_trace(json_of, small_trace, pool):
    (row,) = json_of(
        "replay", small_trace, "--provider", "host", "--pool", pool, "--json", "--repeat", 1
    )
    trace = Trace.load(small_trace)
    assert (row["pool"], row["failed"]) == (pool, 0)
    assert (row["allocations"], row["frees"]) == (trace.allocations, trace.frees)


def test_an_arena_has_pages_for_the_largest_request_of_each_trace(json_of, tmp_path):
    largest = [33 << 20, 100 << 20]
    traces = [tmp_path / f"{size}.csv" for size in largest]
    for path, size in zip(traces, largest, strict=True):
        path.write_text(f"a,1,{size},0\nf,1,,\na,2,64,0\na,3,{1 << 62},0\n", encoding="utf-8")
    arguments = ["--provider", "host", "--pool", "manager:single_arena", "--json", "--repeat", 1]
    rows = json_of("replay", *traces, *arguments, status=1)
    assert [row["peak_reserved_bytes"] for row in rows] == largest
    assert [row["failed"] for row in rows] == [1, 1], "what no device holds is too large a page"


def test_help_names_every_pool(invoke):
    text = invoke("replay", "--help").stdout
    assert all(pool in text for pool in ALL_POOLS)


def test_several_traces_give_one_list(json_of, small_trace):
    rows = json_of("replay", small_trace, small_trace, "--provider", "host", "--json")
    assert len(rows) == 2
    for key in ("allocations", "peak_reserved_bytes", "provider_allocs"):
        assert rows[0][key] == rows[1][key]


def test_a_table_for_people(invoke, small_trace):
    result = invoke("replay", small_trace, "--provider", "host")
    assert result.exit_code == 0
    assert "default pool, host memory" in result.stdout
    assert "small" in result.stdout
    assert "MiB" in result.stdout
    assert "modelled" not in result.stdout  # a column that nobody can fill
    assert result.stderr == ""


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("target", [["--provider", "host"], ["--emulate"]])
def test_where_memory_runs_out_the_count_says_so(umfpy_command, small_trace, target, pool):
    memory = 64 << 20
    done = umfpy_command(
        "replay", small_trace, *target, "--pool", pool, "--memory", memory, "--json", status=1
    )
    (row,) = json.loads(done.stdout)
    assert row["failed"] > 0
    assert row["allocations"] + row["failed"] == Trace.load(small_trace).allocations
    assert row["peak_reserved_bytes"] <= memory
    assert "found no memory" in done.stderr
    assert "the first was told: " in done.stderr
    assert "metered" not in done.stderr  # which nobody has asked for
    assert "--memory" in done.stderr


def test_who_has_no_memory_is_called_by_the_options(umfpy_command, small_trace):
    arguments = ["--provider", "host", "--memory", 1 << 20, "--repeat", 1]
    for pool in sorted(set(ALL_POOLS) - {"coarse", "proxy"}):  # whose provider answers
        done = umfpy_command("replay", small_trace, *arguments, "--pool", pool, status=1)
        assert f"'{pool} over host'" in done.stderr


def test_no_memory_at_all(umfpy_command, small_trace):
    done = umfpy_command("replay", small_trace, "--emulate", "--memory", "0", status=1)
    assert "memory must be from 2 MiB" in done.stderr
    done = umfpy_command(
        "replay", small_trace, "--provider", "host", "--memory", "0", "--json", status=1
    )
    assert json.loads(done.stdout)[0]["allocations"] == 0


def test_memory_in_units(json_of, small_trace):
    rows = [
        json_of("replay", small_trace, "--emulate", "--memory", size, "--json", "--repeat", 1)
        for size in ("2GiB", str(2 << 30))
    ]
    assert rows[0][0]["peak_reserved_bytes"] == rows[1][0]["peak_reserved_bytes"]


def test_no_gpu_and_no_emulation_is_an_error_with_the_remedy(umfpy_command, small_trace):
    if os.path.exists("/dev/nvidiactl"):
        pytest.skip("this machine has a GPU")
    done = umfpy_command("replay", small_trace, status=1)
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert "--emulate" in done.stderr


def test_host_memory_needs_no_emulation(invoke, small_trace):
    result = invoke("replay", small_trace, "--provider", "host", "--emulate", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout)[0]["modelled_driver_us"] is None
    assert "changes nothing" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["no_such_file.csv"],
        ["."],
        ["TRACE", "--provider", "nonsense"],
        ["TRACE", "--pool", "nonsense"],
        ["TRACE", "--memory", "much"],
        ["TRACE", "--memory", "-5"],
        ["TRACE", "--repeat", "0"],
    ],
)
def test_wrong_usage_is_2(invoke, small_trace, arguments):
    result = invoke("replay", *[small_trace if a == "TRACE" else a for a in arguments])
    assert result.exit_code == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a,1,8,0\nz,1,8,0\n", "line 2: unknown operation 'z'"),
        (b"f,9,,\n", "line 1: id 9 is freed but not allocated"),
        (b"a,1,-1,0\n", "line 1: size -1 is negative"),
    ],
)
def test_a_bad_trace_is_one_line(invoke, tmp_path, content, says):
    path = tmp_path / "bad.csv"
    path.write_bytes(content)
    result = invoke("replay", path, "--provider", "host")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"Error: {path}, {says}")
    assert len(result.stderr.splitlines()) == 1


def test_a_truncated_trace_is_one_line(invoke, tmp_path, small_trace):
    path = tmp_path / "cut.csv.gz"
    path.write_bytes(small_trace.read_bytes()[:-200])
    result = invoke("replay", path, "--provider", "host")
    assert result.exit_code == 1
    assert "ends early" in result.stderr


def test_a_trace_without_events(invoke, tmp_path):
    path = tmp_path / "empty.csv.gz"
    path.write_bytes(gzip.compress(b"op,id,size,stream\n"))
    result = invoke("replay", path, "--provider", "host", "--json")
    (row,) = json.loads(result.stdout)
    assert (row["allocations"], row["utilization"], row["ns_per_op"]) == (0, 1.0, None)
    assert invoke("replay", path, "--provider", "host").exit_code == 0


def test_an_allocation_that_no_device_holds(invoke, tmp_path):
    path = tmp_path / "huge.csv"
    path.write_text(f"a,1,{(1 << 64) - 1},0\na,2,{1 << 63},0\na,3,64,0\n", encoding="utf-8")
    for pool in POOLS:
        result = invoke("replay", path, "--provider", "host", "--pool", pool, "--json")
        assert result.exit_code == 1
        (row,) = json.loads(result.stdout)
        assert (row["failed"], row["allocations"]) == (2, 1)


@pytest.mark.parametrize("no_color", [False, True])
def test_progress_and_colours_on_a_terminal_only(small_trace, no_color):
    main_end, process_end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "150"}
    environment.pop("NO_COLOR", None)
    if no_color:
        environment["NO_COLOR"] = "1"
    with subprocess.Popen(
        [sys.executable, "-m", "umfpy", "replay", small_trace, "--provider", "host"],
        stdout=subprocess.PIPE,
        stderr=process_end,
        env=environment,
    ) as process:
        os.close(process_end)
        shown = _read_all(main_end)
        assert process.stdout is not None
        output = process.stdout.read()
    assert process.returncode == 0
    assert b"Replaying" in shown
    assert (b"\x1b[38;5;" in shown or b"\x1b[3" in shown) is not no_color
    assert b"\x1b" not in output


def _read_all(terminal):
    shown = b""
    while True:
        try:
            shown += os.read(terminal, 65536)
        except OSError:  # what Linux answers once the other end is closed and all is read
            os.close(terminal)
            return shown


@pytest.mark.parametrize("target", [["--provider", "host"], ["--emulate"]])
def test_every_recorded_trace(json_of, real_traces, target):
    rows = json_of("replay", *real_traces, *target, "--json", "--repeat", 1)
    for row, path in zip(rows, real_traces, strict=True):
        trace = Trace.load(path)
        assert row["failed"] == 0
        assert row["peak_live_bytes"] == trace.peak_live_bytes == trace.fact("peak_live_bytes")
        if "--emulate" in target and trace.torch_utilization is not None:
            assert row["utilization"] >= trace.torch_utilization


def test_a_tenth_more_than_the_peak_is_enough(json_of, real_traces):
    for path in real_traces:
        if path.name.startswith("gpu_"):
            memory = Trace.load(path).peak_live_bytes * 11 // 10
            (row,) = json_of(
                "replay", path, "--emulate", "--memory", memory, "--json", "--repeat", 1
            )
            assert row["failed"] == 0
