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
from umfpy.pools.base import ProviderPool
from umfpy.trace import Trace
from umfpy.trace.replay import replay

FEW, MANY = 100, 100_000
SIZE = 4096
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


def run(settings: Settings) -> Iterator[Case]:
    for preset in PRESETS:
        yield live_slices(preset, settings)
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
