"""Sharing with another process: naming memory, opening it, opening more of the same."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter_ns

import umfpy
from umfpy.bench.absent import Absent
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.results import Case
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.errors import IpcError, NotSupported
from umfpy.ipc import IpcHandle, clear_cache, open_ipc
from umfpy.ipc import export as ipc_export

#: As in UMF's own benchmark.
BUFFERS, SIZE = 1_000, 100


def run(settings: Settings) -> Iterator[Case]:
    count = settings.count(BUFFERS, 20)
    export = Case("ipc", f"export of {count:,} buffers", "ns/handle")
    export.samples = exporting(count, settings)
    yield export
    opened = Case("ipc", "open and close", "ns/handle")
    try:
        with other_process(count) as handles:
            opened.samples = interleave(opening(handles), settings.runs)
    except (Absent, IpcError, NotSupported) as reason:
        opened.absent["umfpy"] = str(reason)
    yield opened


def exporting(count: int, settings: Settings) -> dict[str, list[float]]:
    """Name many pieces of one root: once with the native export, then without."""
    with umfpy.Pool(umfpy.HostProvider(shared=True)) as pool:
        buffers = [pool.allocate(SIZE) for _ in range(count)]

        def cached() -> float:
            start = perf_counter_ns()
            for buffer in buffers:
                ipc_export(buffer)
            return (perf_counter_ns() - start) / count

        samples = interleave({"umfpy, root exported": cached}, settings.runs)
        samples["umfpy, root anew"] = [export_anew() for _ in range(settings.runs)]
        buffers.clear()
    return samples


def export_anew() -> float:
    with umfpy.Pool(umfpy.HostProvider(shared=True)) as pool, pool.allocate(SIZE) as buffer:
        start = perf_counter_ns()
        ipc_export(buffer)
        return perf_counter_ns() - start


def opening(handles: list[IpcHandle]) -> dict[str, Lane]:
    """Return lanes for a handle whose root nothing here has open, and for one that is open."""

    def open_all(before: Callable[[], None]) -> float:
        total = 0
        for handle in handles:
            before()
            start = perf_counter_ns()
            open_ipc(handle).close()
            total += perf_counter_ns() - start
        return total / len(handles)

    return {
        "umfpy, cold": lambda: open_all(clear_cache),
        "umfpy, cached": lambda: open_all(lambda: None),
    }


@contextmanager
def other_process(count: int) -> Iterator[list[IpcHandle]]:
    """Have a child allocate and export, until the block is left.

    The child exports and the parent opens, not the other way round: a process may always reach
    for the descriptors of its own children.
    """
    here, there = socket.socketpair()
    with here, there:
        child = subprocess.Popen(
            [sys.executable, "-m", "umfpy.bench.exporter", str(there.fileno()), str(count)],
            pass_fds=[there.fileno()],
        )
        there.close()
        try:
            with here.makefile("rb") as stream:
                lines = [stream.readline() for _ in range(count)]
            if not lines[-1]:
                raise Absent("the process that should have shared memory ended early")
            yield [IpcHandle.from_bytes(bytes.fromhex(line.decode())) for line in lines]
        finally:
            here.close()
            child.wait()


SCENARIO = Scenario("ipc", f"export and open {BUFFERS:,} buffers of {SIZE} B of host memory", run)
