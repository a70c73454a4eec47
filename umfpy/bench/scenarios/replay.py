"""Traces of real programs, from C."""

from __future__ import annotations

from collections.abc import Iterator

from umfpy.bench.interleave import geometric_mean
from umfpy.bench.results import Case, Goal
from umfpy.bench.scenarios.base import Scenario, Settings
from umfpy.bench.scenarios.native import loop_or_reason, time_workload
from umfpy.bench.traces import folder_of_traces, load_traces, short_name, workload_of

#: Whom to be compared with; the second pools every size, and so never calls its provider.
PEERS = {"umf": "UMF disjoint", "umf-pooling": "UMF disjoint that pools every size"}


def run(settings: Settings) -> Iterator[Case]:
    ratios: dict[str, list[float]] = {peer: [] for peer in PEERS}
    for trace in load_traces(settings.traces):
        case = Case("replay", short_name(trace), "ns/op")
        if loop_or_reason(case) is not None:
            workload = workload_of(trace)
            passes = max(1, settings.count(100_000, 1) // workload.operations)
            largest = max(trace.sizes, default=0)
            time_workload(case, settings, [workload], largest=largest, passes=passes)
        for peer in PEERS:
            ratio = case.ratio("umfpy", peer)
            if ratio is not None:
                ratios[peer].append(ratio.value)
        yield case
    if folder_of_traces(settings.traces) is not None:
        yield summary(ratios)


def summary(ratios: dict[str, list[float]]) -> Case:
    case = Case("replay", "all traces", "x")
    for peer, title in PEERS.items():
        mean = Goal(f"trace replay from C, geometric mean / {title}", bar=0.6, aim=0.4)
        worst = Goal(f"trace replay from C, slowest of the traces / {title}", bar=1.0)
        case.judge(mean, geometric_mean(ratios[peer]))
        case.judge(worst, max(ratios[peer], default=None))
        case.facts[peer] = {"ratios": ratios[peer]}
    return case


SCENARIO = Scenario("replay", "allocation traces of real programs, from C", run)
