"""The memory manager: whether live slices slow it down, and how much memory its layouts hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import repeat
from time import perf_counter_ns

import umfpy
from umfpy.bench.contenders.simulated import SimulatedProvider
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.traces import load_traces, short_name
from umfpy.manager import MemoryConfiguration, MemoryManager
from umfpy.manager.options import ExclusiveOptions, PoolOptions, SlicedOptions
from umfpy.pools.base import ProviderPool
from umfpy.provider import Capability
from umfpy.trace import Trace
from umfpy.trace.replay import replay

FEW, MANY = 100, 100_000
SIZE = 4096
FEW_ASLEEP, MANY_ASLEEP = 50, 2_000
PAGE = 2 << 20
PROPERTIES = {"max_page_size": "1GiB", "alignment": 512}
#: What presets are made for over traces: a quarter of a device of 80 GiB.
DEVICE = {"max_page_size": "20GiB", "alignment": 512}

RATIO_BAR = 2.0
AGAINST_POOL = Goal("reserved by the best preset / by the default pool, {trace}", bar=1.2)

#: The pools that a trace is replayed on; each takes the bytes of the largest request.
LAYOUTS: dict[str, Callable[[int], ProviderPool]] = {
    "default pool": lambda largest: umfpy.Pool(SimulatedProvider()),
    "sub_slices": lambda largest: MemoryManager(SimulatedProvider(), "sub_slices", DEVICE),
    "exclusive_pages": lambda largest: MemoryManager(
        SimulatedProvider(), "exclusive_pages", DEVICE
    ),
    "single arena": lambda largest: MemoryManager(
        SimulatedProvider(), MemoryConfiguration.single_arena(largest), DEVICE
    ),
}
PRESETS = ("sub_slices", "exclusive_pages")

#: Layouts whose pages hold one request of `PAGE` bytes.
PAGES: dict[str, PoolOptions] = {
    "sliced": SlicedOptions(PAGE),
    "exclusive": ExclusiveOptions(PAGE),
}


def run(settings: Settings) -> Iterator[Case]:
    for preset in PRESETS:
        yield live_slices(preset, settings)
    for name in PAGES:
        yield sleeping_pages(name, settings)
    for trace in load_traces(settings.traces):
        yield utilization(trace)


def live_slices(preset: str, settings: Settings) -> Case:
    """Reserve and release beside few and beside many live slices."""
    few, many = settings.count(FEW, 10), settings.count(MANY, 1_000)
    count = settings.count(10_000, 100)
    case = Case("manager", f"{preset}: reserve and release beside N live slices", "ns/pair")
    lanes: dict[str, Lane] = {}
    with ExitStack() as stack:
        for live in (few, many):
            manager = stack.enter_context(MemoryManager(SimulatedProvider(), preset, PROPERTIES))
            held = [manager.reserve(SIZE) for _ in range(live)]
            stack.callback(held.clear)
            lanes[_label(live)] = _pair_lane(manager, count)
        case.samples = interleave(lanes, settings.runs)
    goal = Goal(f"{preset}: reserve + release, {many:,} live / {few:,} live", RATIO_BAR)
    case.judge(goal, case.ratio(_label(many), _label(few)))
    return case


def _pair_lane(manager: MemoryManager, count: int) -> Lane:
    def sample() -> float:
        reserve = manager.reserve
        start = perf_counter_ns()
        for _ in repeat(None, count):
            reserve(SIZE).release()
        return (perf_counter_ns() - start) / count

    return sample


class SleepingProvider(SimulatedProvider):
    """Addresses whose memory, that there is not, comes and goes for nothing."""

    capabilities = Capability.STREAMS | Capability.SPLIT | Capability.COMMIT

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Pieces are not noted."""

    def merge(self, low: int, high: int, size: int) -> None:
        """Nor are they here."""

    def decommit(self, ptr: int, size: int) -> None:
        """There is nothing to drop."""

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        """Nor anything to bring."""


def sleeping_pages(name: str, settings: Settings) -> Case:
    """Reserve what few and what many pages asleep hold, each of which wakes for it."""
    few, many = settings.count(FEW_ASLEEP, 10), settings.count(MANY_ASLEEP, 100)
    case = Case("manager", f"{name} pages: reserve with N pages asleep", "ns/reserve")
    lanes: dict[str, Lane] = {}
    with ExitStack() as stack:
        for asleep in (few, many):
            made = MemoryManager(SleepingProvider(), [PAGES[name]], PROPERTIES)
            lanes[_label(asleep)] = _waking_lane(stack.enter_context(made), asleep)
        case.samples = interleave(lanes, settings.runs)
    goal = Goal(f"{name} pages: wake one, {many:,} asleep / {few:,} asleep", RATIO_BAR)
    case.judge(goal, case.ratio(_label(many), _label(few)))
    return case


def _waking_lane(manager: MemoryManager, pages: int) -> Lane:
    def sample() -> float:
        reserve = manager.reserve
        start = perf_counter_ns()
        held = [reserve(PAGE) for _ in range(pages)]
        passed = (perf_counter_ns() - start) / pages
        held.clear()
        manager.trim(rung="decommit")
        return passed

    return sample


def _label(live: int) -> str:
    return f"umfpy, N = {live:,}"


def utilization(trace: Trace) -> Case:
    """Replay a trace on the default pool and on each layout of a manager; nothing is timed."""
    name = short_name(trace)
    case = Case("manager", f"layouts: {name}", "peak live / peak reserved")
    reserved: dict[str, int] = {}
    for layout, make in LAYOUTS.items():
        with make(max(trace.sizes, default=0)) as pool:
            result = replay(trace, pool)
            now = pool.stats()
        reserved[layout] = result.peak_reserved_bytes
        case.samples[layout] = [result.utilization]
        case.facts[layout] = {
            "peak_reserved_bytes": result.peak_reserved_bytes,
            "provider_allocs": now.provider_allocs,
            "failed": result.failed,
        }
    best = min(reserved[preset] for preset in PRESETS)
    goal = Goal(AGAINST_POOL.title.format(trace=name), AGAINST_POOL.bar)
    case.judge(goal, best / reserved["default pool"] if reserved["default pool"] else None)
    return case


SCENARIO = Scenario(
    "manager", f"memory manager: {MANY:,} live slices against {FEW}, layouts over traces", run
)
