"""What pooling is worth: the trace that comes with umfpy, on a pool and on the bare driver."""

from __future__ import annotations

from collections.abc import Iterator

import umfpy
from umfpy.cli.demonstration.act import Facts, keep
from umfpy.cli.demonstration.device import Device
from umfpy.trace.measure import Target
from umfpy.trace.shipped import load_shipped
from umfpy.units import format_size

_POOLS = {"pool": umfpy.Pool, "proxy": umfpy.ProxyPool}


def run(device: Device) -> Facts:
    """Replay the trace once with each."""
    trace = load_shipped()
    facts: Facts = {"allocations": trace.allocations, "peak_live_bytes": trace.peak_live_bytes}
    for name, make_pool in _POOLS.items():
        provider = device.open()
        clock = device.clock_us if device.emulated else None
        measured = Target(provider, make_pool, clock_us=clock).measure(trace)
        provider.close()
        facts[name] = {
            "driver_calls": measured.provider_allocs + measured.provider_frees,
            "peak_reserved_bytes": measured.peak_reserved_bytes,
            "utilization": measured.utilization,
            "modelled_driver_us": measured.modelled_driver_us,
            "ns_per_op": measured.ns_per_op,
        }
        keep(measured.result.failed == 0, "every allocation is served", facts)
    pooled, bare = facts["pool"], facts["proxy"]
    keep(pooled["driver_calls"] < bare["driver_calls"], "a pool spares driver calls", facts)
    return facts


def tell(facts: Facts) -> Iterator[str]:
    """Yield the lines for people."""
    yield (
        f"{facts['allocations']:,} allocations of a transformer in training, at most "
        f"{format_size(facts['peak_live_bytes'])} live"
    )
    for name, label in (("proxy", "without a pool"), ("pool", "with umfpy.Pool")):
        row = facts[name]
        modelled = row["modelled_driver_us"]
        time = "" if modelled is None else f", {modelled / 1000:,.1f} ms in the driver (modelled)"
        yield (
            f"{label:15} {row['driver_calls']:5,} driver calls{time}, "
            f"{format_size(row['peak_reserved_bytes'])} taken, utilization "
            f"{row['utilization']:.3f}"
        )
