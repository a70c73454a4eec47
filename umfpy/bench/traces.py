"""Allocation traces: CSV files, plain or gzipped, of ``op,id,size,stream``."""

from __future__ import annotations

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from umfpy.bench.absent import Absent
from umfpy.bench.native.loop import RELEASE, TAKE
from umfpy.bench.workload import Workload, pack

#: Traces that come with the package.
SHIPPED = Path(__file__).parent / "traces"
#: Looked at in turn when no folder was named.
PLACES = (Path("../shared/traces"), Path("shared/traces"), SHIPPED)


@dataclass
class Trace:
    """Allocations and frees in the order in which a program made them.

    Attributes
    ----------
    notes
        The comments at the head of the file, as ``key: value``.
    ops
        (kind, slot, size); slots are used again once freed.
    """

    name: str
    notes: dict[str, str] = field(default_factory=dict)
    ops: list[tuple[int, int, int]] = field(default_factory=list)
    slots: int = 0
    live_at_end: list[int] = field(default_factory=list)
    peak_live_bytes: int = 0

    def workload(self) -> Workload:
        """All of it timed; what it leaves is freed afterwards, so that it can be repeated."""
        drain = pack((RELEASE, slot, 0) for slot in self.live_at_end)
        return Workload(pack(()), pack(self.ops), drain, max(self.slots, 1))

    def torch_utilization(self) -> float | None:
        """Peak live over peak reserved of PyTorch's allocator, where the trace is from it."""
        if "torch_peak_reserved" not in self.notes:
            return None
        return int(self.notes["torch_peak_active"]) / int(self.notes["torch_peak_reserved"])


def find_traces(folder: Path | None) -> list[Path]:
    """Return the trace files of `folder`, of ``$UMFPY_TRACES``, or of the first usual place."""
    named = folder or (Path(os.environ["UMFPY_TRACES"]) if "UMFPY_TRACES" in os.environ else None)
    places = PLACES if named is None else (named,)
    for place in places:
        files = sorted([*place.glob("*.csv"), *place.glob("*.csv.gz")])
        if files:
            return files
    raise Absent(f"no .csv or .csv.gz traces in {', '.join(map(str, places))}")


def read_trace(path: Path) -> Trace:
    """Read one file; a line that is none is a ValueError with its number."""
    trace = Trace(path.name.split(".csv")[0])
    slots: dict[str, tuple[int, int]] = {}
    spare: list[int] = []
    live = 0
    for number, line in enumerate(lines(path), 1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            trace.notes[key.strip()] = value.strip()
            continue
        op, key, size, *_ = [*line.split(","), "", ""]
        if op == "a" and key not in slots:
            slot = spare.pop() if spare else len(slots)
            slots[key] = slot, int(size)
            trace.ops.append((TAKE, slot, int(size)))
            live += int(size)
        elif op == "f" and key in slots:
            slot, freed = slots.pop(key)
            spare.append(slot)
            trace.ops.append((RELEASE, slot, 0))
            live -= freed
        elif op != "op":
            raise ValueError(f"{path}, line {number}: not an operation: {line!r}")
        trace.slots = max(trace.slots, len(slots))
        trace.peak_live_bytes = max(trace.peak_live_bytes, live)
    trace.live_at_end = [slot for slot, _ in slots.values()]
    return trace


def lines(path: Path) -> Iterator[str]:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="ascii") as file:
        for line in file:
            if line.strip():
                yield line.strip()
