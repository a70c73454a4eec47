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

#: Looked at when no folder was named; then comes the trace that is shipped.
USUAL_PLACE = Path("../shared/traces")


def load_traces(folder: Path | None) -> list[Trace]:
    """Return the traces of `folder`, of ``$UMFPY_TRACES``, of the usual place, or the shipped one.

    Raises Absent if a folder was named and has none.
    """
    named = folder or (Path(os.environ["UMFPY_TRACES"]) if "UMFPY_TRACES" in os.environ else None)
    place = named or USUAL_PLACE
    files = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
    if files:
        return [Trace.load(file) for file in files]
    if named is not None:
        raise Absent(f"there are no .csv or .csv.gz traces in {named}")
    return [load_shipped()]


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
