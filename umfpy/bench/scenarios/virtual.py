"""A pool over virtual memory beside one over the driver's allocations, over real traces.

Both run on an emulated GPU, in a process of its own, so that a real one is not hidden from other
scenarios.  Nothing is timed: driver time is what the emulated driver's clock says.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from typing import cast

import umfpy
from umfpy.bench.interleave import geometric_mean
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.traces import folder_of_traces, load_traces, short_name
from umfpy.errors import DriverUnavailable
from umfpy.trace import Trace
from umfpy.trace.measure import Target

#: Of the emulated GPU: more than any trace takes.
MEMORY = "192GiB"
#: Of a small one: times the most that is live at once.
TIGHT = 1.02
#: The traces that have to fit there: those of programs on a GPU.
ON_GPU = "gpu_"

PLAIN, VIRTUAL = "umfpy, driver's allocations", "umfpy, virtual memory"
MEAN = Goal("utilization over virtual memory, geometric mean", 0.97, 0.99, at_most=False, unit="")
TIME = Goal("modelled driver time, virtual / driver's allocations, {trace}", bar=4.0, aim=1.0)
FITS = Goal("allocations refused by a device of 1.02 x the peak, {trace}", bar=0, unit="")


@dataclass(frozen=True)
class Outcome:
    """What a replay took."""

    utilization: float
    peak_reserved_bytes: int
    provider_calls: int
    modelled_driver_us: float
    failed: int


def run(settings: Settings) -> Iterator[Case]:
    found: list[float] = []
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=spawn) as process:
        for trace in load_traces(settings.traces):
            case = Case("virtual", short_name(trace), "peak live / peak reserved")
            try:
                compare(process, trace, case)
            except DriverUnavailable as reason:
                case.absent[VIRTUAL] = str(reason)
            found += case.samples.get(VIRTUAL, [])
            yield case
    if folder_of_traces(settings.traces) is not None:
        total = Case("virtual", "all traces", "")
        total.judge(MEAN, geometric_mean(found))
        yield total


def compare(process: ProcessPoolExecutor, trace: Trace, case: Case) -> None:
    """Replay a trace on both pools, and on a device that has hardly more than is live."""
    measured = {
        name: process.submit(replay_on, trace, virtual, MEMORY).result()
        for name, virtual in ((PLAIN, False), (VIRTUAL, True))
    }
    for name, outcome in measured.items():
        case.samples[name] = [outcome.utilization]
        case.facts[name] = asdict(outcome)
    times = [measured[name].modelled_driver_us for name in (VIRTUAL, PLAIN)]
    case.judge(_of(TIME, case), times[0] / times[1] if times[1] else None)
    if case.name.startswith(ON_GPU):
        tight = process.submit(replay_on, trace, True, int(TIGHT * trace.peak_live_bytes))
        case.judge(_of(FITS, case), float(tight.result().failed))


def replay_on(trace: Trace, virtual: bool, memory: str | int) -> Outcome:
    """Replay a trace on an emulated GPU; runs in the other process."""
    driver = umfpy.emulate("cuda", memory=memory, force=True, children=False)
    provider = umfpy.CudaVmmProvider() if virtual else umfpy.CudaProvider()
    make = cast("type[umfpy.Pool]", partial(umfpy.Pool, virtual=virtual))
    try:
        measured = Target(provider, make, clock_us=lambda: driver.clock_us).measure(trace, repeat=0)
    finally:
        provider.close()
    return Outcome(
        utilization=measured.utilization,
        peak_reserved_bytes=measured.peak_reserved_bytes,
        provider_calls=measured.provider_allocs + measured.provider_frees,
        modelled_driver_us=measured.modelled_driver_us or 0.0,
        failed=measured.result.failed,
    )


def _of(goal: Goal, case: Case) -> Goal:
    """Return a goal that names the trace."""
    title = goal.title.format(trace=case.name)
    return Goal(title, goal.bar, goal.aim, at_most=goal.at_most, unit=goal.unit)


SCENARIO = Scenario(
    "virtual", "pool over virtual memory on an emulated GPU: utilization, modelled driver time", run
)
