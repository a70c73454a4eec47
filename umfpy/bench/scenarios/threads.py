"""Two threads on one pool, from C: does the second one add anything?"""

from __future__ import annotations

from collections.abc import Iterator

from umfpy.bench.contenders.registry import native_pools
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.native.loop import Loop, PoolFunctions
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import lane, loop_or_reason
from umfpy.bench.workload import Generator, Sizes, Workload

LIVE = 1_000
SIZES = Sizes(512, 256 << 10)

THROUGHPUT = Goal("throughput of two threads / one", bar=0.7, aim=1.6, at_most=False)


def run(settings: Settings) -> Iterator[Case]:
    case = Case("threads", "one pool, 512 B - 256 KiB", "operations/us")
    loop = loop_or_reason(case)
    if loop is not None:
        workloads = [make(loop, settings, seed) for seed in (1, 2)]
        with native_pools(settings.contenders, case.absent, largest=SIZES.high) as pools:
            lanes: dict[str, Lane] = {}
            for name, pool in pools.items():
                for threads in (1, 2):
                    lanes[label(name, threads)] = throughput(
                        loop, pool.functions(), workloads[:threads]
                    )
            case.samples = interleave(lanes, settings.runs)
    case.judge(THROUGHPUT, case.ratio(label("umfpy", 2), label("umfpy", 1)))
    yield case


def make(loop: Loop, settings: Settings, seed: int) -> Workload:
    many = Generator(loop, LIVE, SIZES, seed)
    prepare = many.ramp(LIVE)
    timed = many.replace(settings.count(100_000, 1_000))
    return Workload(timed, many.slots, prepare=prepare, drain=many.drain())


def throughput(loop: Loop, functions: PoolFunctions, workloads: list[Workload]) -> Lane:
    """Return what takes a sample: operations of all threads in a microsecond."""
    nanoseconds = lane(loop, functions, workloads)
    return lambda: 1_000 / nanoseconds()


def label(contender: str, threads: int) -> str:
    return f"{contender}, {threads} thread{'s' if threads > 1 else ''}"


SCENARIO = Scenario("threads", "two threads on one pool against one, from C", run)
