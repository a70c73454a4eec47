"""Whether a pool that runs for long holds ever more memory than is live."""

from __future__ import annotations

from collections.abc import Iterator

from umfpy.bench.contenders.base import NativePool
from umfpy.bench.contenders.registry import native_pools
from umfpy.bench.native.loop import Loop
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason
from umfpy.bench.workload import Generator, Sizes, Workload

LIVE = 4_000
SIZES = Sizes(512, 8 << 20, logarithmic=True)
SEED = 4
OPERATIONS = 10_000_000
#: Replacements, two operations each, that are generated at a time.
CHUNK = 250_000

RESERVED = Goal("fragmentation, peak reserved / peak live", bar=1.20)
GROWTH = Goal("fragmentation, growth in the second half", bar=0, unit="bytes")


def run(settings: Settings) -> Iterator[Case]:
    case = Case("fragmentation", f"{LIVE:,} live, 512 B - 8 MiB", "peak reserved / peak live")
    loop = loop_or_reason(case)
    if loop is not None:
        replacements = settings.count(OPERATIONS, 40_000) // 2
        with native_pools(settings.contenders, case.absent, largest=SIZES.high) as pools:
            for name, pool in pools.items():
                wear(case, loop, name, pool, replacements)
    facts = case.facts.get("umfpy", {})
    case.judge(RESERVED, case.median("umfpy"))
    case.judge(GROWTH, facts.get("second_half_growth_bytes"))
    yield case


def wear(case: Case, loop: Loop, name: str, pool: NativePool, replacements: int) -> None:
    """Note how much the pool held at its peak, over all and in each half."""
    generator = Generator(loop, LIVE, SIZES, SEED)
    peaks = [replace_many(loop, pool, generator, replacements // 2) for _ in range(2)]
    loop.run(pool.functions(), Workload(generator.drain(), generator.slots).work)
    case.samples[name] = [peaks[1] / generator.peak_live_bytes]
    case.facts[name] = {
        "peak_live_bytes": generator.peak_live_bytes,
        "first_half_peak_reserved_bytes": peaks[0],
        "second_half_peak_reserved_bytes": peaks[1],
        "second_half_growth_bytes": peaks[1] - peaks[0],
        "provider_allocs": pool.counters()["provider_allocs"],
    }


def replace_many(loop: Loop, pool: NativePool, generator: Generator, count: int) -> int:
    """Fill the slots if they are empty, replace `count` blocks, and return the peak held so far."""
    if generator.peak_live_bytes == 0:
        loop.run(pool.functions(), Workload(generator.ramp(LIVE), generator.slots).work)
    while count > 0:
        ops = generator.replace(min(count, CHUNK))
        loop.run(pool.functions(), Workload(ops, generator.slots).work)
        count -= len(ops)
    return pool.counters()["peak_reserved_bytes"]


SCENARIO = Scenario(
    "fragmentation", f"{OPERATIONS:,} random operations with {LIVE:,} live blocks, from C", run
)
