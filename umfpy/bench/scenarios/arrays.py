"""A program of array expressions, whose temporaries come from one pool or the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns
from typing import Any

import umfpy
from umfpy.bench.absent import Absent
from umfpy.bench.contenders.opencl import open_queue
from umfpy.bench.interleave import Lane, interleave
from umfpy.bench.results import Case
from umfpy.bench.scenarios.base import Scenario, Settings

#: Elements of the arrays: small enough that the allocator shows beside the kernels.
SIZES = (256, 1_000, 4_096)
TEMPORARIES = 3  # in each expression


def run(settings: Settings) -> Iterator[Case]:
    case = Case("arrays", "pyopencl.array temporaries", "us/temporary")
    try:
        case.samples = interleave(lanes(settings.count(300, 5)), settings.runs)
    except Absent as reason:
        case.absent["pyopencl"] = str(reason)
    yield case


def lanes(rounds: int) -> dict[str, Lane]:
    """Return the same program over umfpy's pool, pyopencl's, and no pool."""
    cl, _ = open_queue()
    from umfpy.integrations.pyopencl import allocator

    provider = umfpy.OpenCLProvider(mode="buffer")
    immediate = cl.tools.ImmediateAllocator(provider.queue)
    return {
        "umfpy": program(provider.queue, allocator(umfpy.Pool(provider)), rounds),
        "pyopencl": program(provider.queue, cl.tools.MemoryPool(immediate), rounds),
        "no pool": program(provider.queue, immediate, rounds),
    }


def program(queue: Any, allocator: Callable[[int], Any], rounds: int) -> Lane:
    """Return a lane that computes with arrays of several sizes, and answers microseconds."""
    import pyopencl.array as clarray

    inputs = [clarray.zeros(queue, size, "f4", allocator=allocator) + 1 for size in SIZES]

    def compute() -> float:
        start = perf_counter_ns()
        for _ in range(rounds):
            for x in inputs:
                x = (x * 2 + x) * x
        queue.finish()
        count = rounds * len(inputs) * TEMPORARIES
        return (perf_counter_ns() - start) / 1_000 / count

    return compute


SCENARIO = Scenario("arrays", "a pyopencl.array program with thousands of temporaries", run)
