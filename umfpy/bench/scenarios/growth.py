"""What an operation costs, and how much metadata a block takes, as live blocks get many.

Two questions that one number would mix up.  *Beside* N other live blocks, a program works on
1,000 of its own: that asks whether the structures scale.  *Among* N, every operation goes to a
random one of all: that asks how many cache lines of cold metadata an operation touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

from umfpy.bench.contenders.base import NativePool
from umfpy.bench.contenders.registry import native_pools
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.native.loop import Loop
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason
from umfpy.bench.workload import Generator, Sizes, Workload

FEW, MANY = 1_000, 1_000_000
WORKING_SET = 1_000
SIZES = Sizes(512, 64 << 10, logarithmic=True)

#: Time with many blocks over time with few; the title is made from the counts.
BESIDE_BAR, BESIDE_AIM = 2.5, 1.5
METADATA = Goal("metadata per live block", bar=64, aim=40, unit="B")


class Heap:
    """A pool with `count` live blocks, each of which was replaced once on average.

    So it has holes of all sizes, as that of a program that has been running for a while.
    """

    def __init__(self, loop: Loop, pool: NativePool, count: int) -> None:
        self._loop = loop
        self._functions = pool.functions()
        self.count = count
        self._others = Generator(loop, count, SIZES, seed=2)
        self._run(Workload(self._others.ramp(count), self._others.slots))
        #: With exactly `count` blocks ever made.
        self.metadata_bytes = pool.counters().get("metadata_bytes")
        self._run(Workload(self._others.replace(count), self._others.slots))
        self._own = Generator(loop, WORKING_SET, SIZES, seed=3)
        self._run(Workload(self._own.ramp(WORKING_SET), self._own.slots))

    def beside(self, operations: int) -> Lane:
        """Replace blocks of the working set."""
        return self._lane(self._own, operations)

    def among(self, operations: int) -> Lane:
        """Replace random blocks of all the others."""
        return self._lane(self._others, operations)

    def drain(self) -> None:
        for generator in (self._own, self._others):
            self._run(Workload(generator.ramp(len(generator.slots)), generator.slots))

    def _lane(self, generator: Generator, operations: int) -> Lane:
        def sample() -> float:
            workload = Workload(generator.replace(operations // 2), generator.slots)
            return self._run(workload) / workload.operations

        return sample

    def _run(self, workload: Workload) -> int:
        return self._loop.run(self._functions, workload.work)


def run(settings: Settings) -> Iterator[Case]:
    few, many = settings.count(FEW, 100), settings.count(MANY, 2_000)
    beside = Case("growth", f"{WORKING_SET:,} blocks beside N others", "ns/op")
    among = Case("growth", "random ones of N blocks", "ns/op")
    metadata = Case("growth", "metadata", "B/live block")
    loop = loop_or_reason(beside)
    if loop is not None:
        measure(loop, settings, (few, many), beside, among, metadata)
    among.absent = metadata.absent = beside.absent
    goal = Goal(f"malloc + free from C, {many:,} live / {few:,} live", BESIDE_BAR, BESIDE_AIM)
    beside.judge(goal, beside.ratio(label("umfpy", many), label("umfpy", few)))
    metadata.judge(METADATA, metadata.median(label("umfpy", many)))
    yield from (beside, among, metadata)


def measure(
    loop: Loop,
    settings: Settings,
    counts: tuple[int, ...],
    beside: Case,
    among: Case,
    metadata: Case,
) -> None:
    """Fill the three cases from heaps of each of `counts` blocks."""
    operations = settings.count(50_000, 500)
    heaps: dict[str, Heap] = {}
    with ExitStack() as stack:
        for count in counts:
            pools = native_pools(settings.contenders, beside.absent, largest=SIZES.high)
            for name, pool in stack.enter_context(pools).items():
                heaps[label(name, count)] = Heap(loop, pool, count)
        beside.samples = interleave(
            {name: heap.beside(operations) for name, heap in heaps.items()}, settings.runs
        )
        among.samples = interleave(
            {name: heap.among(operations) for name, heap in heaps.items()}, settings.runs
        )
        for name, heap in heaps.items():
            if heap.metadata_bytes is not None:
                metadata.samples[name] = [heap.metadata_bytes / heap.count]
            heap.drain()


def label(contender: str, count: int) -> str:
    return f"{contender}, N = {count:,}"


SCENARIO = Scenario("growth", f"{MANY:,} live blocks against {FEW:,}, from C", run)
