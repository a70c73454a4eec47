"""The benchmarks that UMF itself comes with: 10,000 slots, half of them full beforehand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from umfpy.bench.native.loop import Loop
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason, time_workload
from umfpy.bench.workload import Generator, Sizes, Workload


@dataclass(frozen=True)
class Variant:
    """`ramp`: all slots are filled in turn and freed in turn, instead of at random."""

    sizes: Sizes
    threads: int = 1
    ramp: bool = False

    @property
    def name(self) -> str:
        sizes = str(self.sizes.low)
        if self.sizes.high != self.sizes.low:
            sizes += f" - {self.sizes.high}"
        threads = "1 thread" if self.threads == 1 else f"{self.threads} threads"
        return f"{sizes} B{', up and down' if self.ramp else ''}, {threads}"


SLOTS = 10_000
FIXED, UNIFORM, SMALL = Sizes(4096, 4096), Sizes(8, 4096), Sizes(8, 128)
VARIANTS = (
    Variant(FIXED),
    Variant(UNIFORM),
    Variant(SMALL),
    Variant(FIXED, threads=4),
    Variant(UNIFORM, threads=4),
    Variant(SMALL, threads=4),
    Variant(UNIFORM, ramp=True),
)


def run(settings: Settings) -> Iterator[Case]:
    for variant in VARIANTS:
        case = Case("umf", variant.name, "ns/op")
        loop = loop_or_reason(case)
        if loop is not None:
            workloads = [make(loop, variant, settings, seed) for seed in range(variant.threads)]
            time_workload(case, settings, workloads, largest=variant.sizes.high)
        if variant.threads == 1:
            goal = Goal(f"malloc + free from C, {variant.name} / UMF disjoint", 1.0, 0.5)
            case.judge(goal, case.ratio("umfpy", "umf"))
        yield case


def make(loop: Loop, variant: Variant, settings: Settings, seed: int) -> Workload:
    """Return the work of one thread, on slots of its own."""
    slots = settings.count(SLOTS, 100)
    generator = Generator(loop, slots, variant.sizes, seed)
    if variant.ramp:
        return Workload(generator.ramp(2 * slots), generator.slots)
    prepare = generator.ramp(slots // 2)
    timed = generator.toggle(settings.count(200_000, 2_000))
    return Workload(timed, generator.slots, prepare=prepare, drain=generator.drain())


SCENARIO = Scenario("umf", f"UMF's own: {SLOTS:,} slots, toggled at random, from C", run)
