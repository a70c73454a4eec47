"""Measuring a workload from C, for every contender with functions to call."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.bench.absent import Absent
from umfpy.bench.contenders.registry import native_pools
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.native.loop import Loop, PoolFunctions, load
from umfpy.bench.results import Case
from umfpy.bench.scenarios.base import Settings
from umfpy.bench.workload import Workload

#: The lane that says what the loop costs without any pool.
LOOP = "loop"


def loop_or_reason(case: Case) -> Loop | None:
    """Return the C loop, or note in the case that nobody can be measured without it."""
    try:
        return load()
    except Absent as reason:
        case.absent["umfpy"] = str(reason)
        return None


def time_workload(
    case: Case, settings: Settings, workloads: Sequence[Workload], *, largest: int, passes: int = 1
) -> None:
    """Fill the case with ns per operation; several workloads run in a thread each.

    `largest` is the size of the largest block in bytes.
    """
    loop = load()
    with native_pools(settings.contenders, case.absent, largest=largest) as pools:
        lanes = {
            name: lane(loop, pool.functions(), workloads, passes) for name, pool in pools.items()
        }
        lanes[LOOP] = lane(loop, loop.nothing, workloads, passes)
        case.samples = interleave(lanes, settings.runs)
        case.facts = {name: dict(pool.counters()) for name, pool in pools.items()}


def lane(
    loop: Loop, functions: PoolFunctions, workloads: Sequence[Workload], passes: int = 1
) -> Lane:
    """Return what takes a sample: ns of wall time per operation of all threads together."""
    operations = sum(workload.operations for workload in workloads) * passes

    def sample() -> float:
        if len(workloads) == 1:
            return loop.run(functions, workloads[0].work, passes) / operations
        return loop.run_threads(functions, [w.work for w in workloads], passes) / operations

    return sample
