"""The traces to replay, and what the C loop makes of them."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from umfpy.bench.absent import Absent
from umfpy.bench.native.loop import RELEASE, TAKE
from umfpy.bench.workload import Workload, pack
from umfpy.trace import Trace
from umfpy.trace.shipped import load_shipped

#: Names the folder of traces where no option does.
VARIABLE = "UMFPY_TRACES"


def folder_of_traces(folder: Path | None) -> Path | None:
    """Return `folder`, else ``$UMFPY_TRACES``; None where the trace that is shipped has to do.

    That one is of a model of a program.  What is asked of recorded traces as a whole, a mean or
    the worst of them, says nothing of it.
    """
    if folder is None and os.environ.get(VARIABLE):
        return Path(os.environ[VARIABLE])
    return folder


def load_traces(folder: Path | None) -> list[Trace]:
    """Return the traces of `folder`, of ``$UMFPY_TRACES``, or the one that is shipped.

    Raises Absent if a folder was named and has none.
    """
    place = folder_of_traces(folder)
    if place is None:
        return [load_shipped()]
    files = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
    if not files:
        raise Absent(f"there are no .csv or .csv.gz traces in {place}")
    return [Trace.load(file) for file in files]


def short_name(trace: Trace) -> str:
    return Path(trace.name).name.split(".csv")[0]


def workload_of(trace: Trace) -> Workload:
    """All of the trace timed; what it leaves is freed afterwards, so that it can be repeated."""
    ops: list[tuple[int, int, int]] = []
    live: dict[int, None] = {}
    for code, size, _ in trace.operations():
        if code >= 0:
            ops.append((TAKE, code, size))
            live[code] = None
        else:
            ops.append((RELEASE, ~code, 0))
            del live[~code]
    drain = pack((RELEASE, slot, 0) for slot in live)
    return Workload(pack(ops), (ctypes.c_void_p * max(trace.slots, 1))(), drain=drain)
