"""``python -m umfpy.bench.quick``: umfpy against UMF from C in a few seconds, while optimising."""

from __future__ import annotations

from umfpy.bench.contenders.own import OwnNativePool
from umfpy.bench.contenders.umf import DisjointPool
from umfpy.bench.interleave import compare, geometric_mean, interleave, median
from umfpy.bench.native.loop import load
from umfpy.bench.traces import find_traces, read_trace
from umfpy.bench.workload import Generator, Sizes, Workload, pack

ROUNDS = 9
OPERATIONS = 100_000


def measure(name: str, workload: Workload) -> float:
    """Print nanoseconds per operation, and return umfpy's share of UMF's."""
    loop = load()
    pools = {"umfpy": OwnNativePool(), "umf": DisjointPool()}
    passes = max(1, OPERATIONS // workload.operations)

    def nanoseconds(pool: str) -> float:
        elapsed = loop.run(pools[pool].functions(), workload.work, passes)
        return elapsed / passes / workload.operations

    samples = interleave(
        {"umfpy": lambda: nanoseconds("umfpy"), "umf": lambda: nanoseconds("umf")}, ROUNDS
    )
    ratio = compare(samples["umfpy"], samples["umf"])
    share = ratio.value if ratio else float("nan")
    own, other = median(samples["umfpy"]), median(samples["umf"])
    print(f"{name:32} umfpy {own:6.1f} ns   UMF {other:6.1f} ns   {share:.3f}")
    for pool in pools.values():
        pool.close()
    return share


def main() -> None:
    loop = load()
    one = Generator(loop, 1, Sizes(4096, 4096), seed=1)
    measure("hit", Workload(pack(()), one.replace(OPERATIONS), one.drain(), 1))
    many = Generator(loop, 1000, Sizes(512, 256 << 10), seed=1)
    measure("mixed", Workload(many.ramp(1000), many.replace(OPERATIONS), many.drain(), 1000))
    traces = [read_trace(path) for path in find_traces(None)]
    shares = [measure(trace.name, trace.workload()) for trace in traces]
    print(f"{'geometric mean of the traces':62} {geometric_mean(shares) or 0:.3f}")


if __name__ == "__main__":
    main()
