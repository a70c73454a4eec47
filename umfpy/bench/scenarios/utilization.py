"""How much of the memory that a pool holds its users asked for, over real traces.

Nothing is timed, and the numbers are the same in every run.
"""

from __future__ import annotations

from collections.abc import Iterator

from umfpy.bench.contenders.registry import native_pools
from umfpy.bench.interleave import geometric_mean
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason
from umfpy.bench.traces import folder_of_traces, load_traces, short_name, workload_of
from umfpy.trace import Trace

MEAN = Goal("utilization, geometric mean", bar=0.92, aim=0.96, at_most=False, unit="")
LEAST = Goal("utilization, lowest", bar=0.80, at_most=False, unit="")
AGAINST_TORCH = Goal("utilization, lowest / PyTorch's recorded", bar=1.0, at_most=False)
CALLS = Goal("native allocations, {trace}", bar=1_000, aim=200, unit="calls")
#: The trace whose native allocations are counted.
COUNTED = "gpu_2.7b_ctx256_fullstep"
RECORDED = "torch, as recorded"


def run(settings: Settings) -> Iterator[Case]:
    found: list[float] = []
    against_torch: list[float] = []
    for trace in load_traces(settings.traces):
        case = replay_once(trace, settings)
        own = case.median("umfpy")
        recorded = trace.torch_utilization
        if recorded is not None:
            case.samples[RECORDED] = [recorded]
        if own is not None:
            found.append(own)
            if recorded:
                against_torch.append(own / recorded)
        yield case
    if folder_of_traces(settings.traces) is not None:
        yield summary(found, against_torch)


def summary(found: list[float], against_torch: list[float]) -> Case:
    total = Case("utilization", "all traces", "")
    total.judge(MEAN, geometric_mean(found))
    total.judge(LEAST, min(found, default=None))
    total.judge(AGAINST_TORCH, min(against_torch, default=None))
    return total


def replay_once(trace: Trace, settings: Settings) -> Case:
    """Replay a trace on a fresh pool of each contender."""
    name = short_name(trace)
    case = Case("utilization", name, "peak live / peak reserved")
    loop = loop_or_reason(case)
    if loop is None:
        return case
    workload = workload_of(trace)
    with native_pools(
        settings.contenders, case.absent, largest=max(trace.sizes, default=0)
    ) as pools:
        for contender, pool in pools.items():
            loop.run(pool.functions(), workload.work)
            counters = pool.counters()
            case.facts[contender] = dict(counters)
            case.samples[contender] = [trace.peak_live_bytes / counters["peak_reserved_bytes"]]
    if name == COUNTED:
        goal = Goal(CALLS.title.format(trace=name), CALLS.bar, CALLS.aim, unit=CALLS.unit)
        case.judge(goal, case.facts["umfpy"]["provider_allocs"])
    return case


SCENARIO = Scenario(
    "utilization", "peak live over peak reserved of each trace, provider calls", run
)
