"""1,000 live blocks of random sizes, replaced at random."""

from __future__ import annotations

import random
from collections.abc import Iterator

from umfpy.bench.contenders.base import PythonPool
from umfpy.bench.contenders.registry import python_pools
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason, time_workload
from umfpy.bench.workload import Generator, Sizes, Workload

LIVE = 1_000
SIZES = Sizes(512, 256 << 10)
SEED = 1

AGAINST_UMF = Goal("malloc + free from C, mixed sizes / UMF disjoint", bar=1.0, aim=0.5)


def run(settings: Settings) -> Iterator[Case]:
    yield from_python(settings)
    yield from_c(settings)


def from_python(settings: Settings) -> Case:
    """The yardstick of an empty object is left out: it has no sizes to mix."""
    case = Case("mixed", "512 B - 256 KiB from Python", "ns/pair")
    draw = random.Random(SEED)
    sizes = [draw.randint(SIZES.low, SIZES.high) for _ in range(LIVE)]
    steps = [
        (draw.randrange(LIVE), draw.randint(SIZES.low, SIZES.high))
        for _ in range(settings.count(20_000, 200))
    ]
    with python_pools(settings.contenders, case.absent) as pools:
        lives = {name: pool.fill(sizes) for name, pool in pools.items() if name != "empty"}
        lanes = {name: lane(pools[name], live, steps) for name, live in lives.items()}
        case.samples = interleave(lanes, settings.runs)
        for name, live in lives.items():
            pools[name].drain(live)
    return case


def lane(pool: PythonPool, live: list[object], steps: list[tuple[int, int]]) -> Lane:
    return lambda: pool.time_replacements(live, steps) / len(steps)


def from_c(settings: Settings) -> Case:
    case = Case("mixed", "512 B - 256 KiB from C", "ns/op")
    loop = loop_or_reason(case)
    if loop is not None:
        many = Generator(loop, LIVE, SIZES, SEED)
        prepare = many.ramp(LIVE)
        timed = many.replace(settings.count(100_000, 1_000))
        workload = Workload(timed, many.slots, prepare=prepare, drain=many.drain())
        time_workload(case, settings, [workload], largest=SIZES.high)
    case.judge(AGAINST_UMF, case.ratio("umfpy", "umf"))
    return case


SCENARIO = Scenario("mixed", f"{LIVE:,} live blocks of 512 B - 256 KiB, replaced at random", run)
