"""One size, allocated and freed at once, over and over."""

from __future__ import annotations

from collections.abc import Iterator

from umfpy.bench.contenders.base import PythonPool
from umfpy.bench.contenders.registry import python_pools
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason, time_workload
from umfpy.bench.workload import Generator, Sizes, Workload

SIZE = 4096

AGAINST_PYOPENCL = Goal("allocate + drop / pyopencl MemoryPool", bar=0.20, aim=0.15)
AGAINST_EMPTY = Goal("allocate + drop / empty Cython object", bar=2.0, aim=1.5)
AGAINST_UMF = Goal("malloc + free from C, one size / UMF disjoint", bar=1.0, aim=0.5)


def run(settings: Settings) -> Iterator[Case]:
    yield from_python(settings)
    yield from_c(settings)


def from_python(settings: Settings) -> Case:
    case = Case("hit", f"{SIZE} B from Python", "ns/pair")
    count = settings.count(20_000, 200)
    with python_pools(settings.contenders, case.absent) as pools:
        lanes = {name: pair_lane(pool, count) for name, pool in pools.items()}
        case.samples = interleave(lanes, settings.runs)
    case.judge(AGAINST_PYOPENCL, case.ratio("umfpy", "pyopencl"))
    case.judge(AGAINST_EMPTY, case.ratio("umfpy", "empty"))
    return case


def pair_lane(pool: PythonPool, count: int) -> Lane:
    return lambda: pool.time_pairs(SIZE, count) / count


def from_c(settings: Settings) -> Case:
    case = Case("hit", f"{SIZE} B from C", "ns/op")
    loop = loop_or_reason(case)
    if loop is not None:
        one = Generator(loop, 1, Sizes(SIZE, SIZE))
        timed = one.replace(settings.count(100_000, 1_000))
        workload = Workload(timed, one.slots, drain=one.drain())
        time_workload(case, settings, [workload], largest=SIZE)
    case.judge(AGAINST_UMF, case.ratio("umfpy", "umf"))
    return case


SCENARIO = Scenario("hit", f"allocate and free {SIZE} B, from Python and from C", run)
