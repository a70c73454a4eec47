"""Many allocations, few calls of the driver."""

from __future__ import annotations

from collections.abc import Iterator

import umfpy
from umfpy.cli.demonstration.act import Facts, keep
from umfpy.cli.demonstration.device import Device
from umfpy.units import format_size

_COUNT = 1000
_SIZE = 10_000


def run(device: Device) -> Facts:
    """Allocate, look one up by an address inside of it, and drop all."""
    provider = device.open()
    with umfpy.Pool(provider) as pool:
        tensors = [pool.allocate(_SIZE) for _ in range(_COUNT)]
        found = umfpy.find(tensors[7].ptr + 123)
        stats = pool.stats()
        facts: Facts = {
            "allocations": stats.live_allocations,
            "requested_bytes": stats.requested_bytes,
            "reserved_bytes": stats.reserved_bytes,
            "driver_allocs": provider.allocs,
            "found_base": found.base if found else None,
            "found_offset": found.offset if found else None,
        }
        keep(facts["found_base"] == tensors[7].ptr, "find() leads to the allocation", facts)
        keep(provider.allocs < _COUNT / 10, "few calls of the driver", facts)
        tensors.clear()
    facts["driver_frees"] = provider.frees
    keep(provider.frees == provider.allocs, "everything went back", facts)
    provider.close()
    return facts


def tell(facts: Facts) -> Iterator[str]:
    """Yield the lines for people."""
    yield (
        f"{facts['allocations']:,} allocations, {format_size(facts['requested_bytes'])} in all: "
        f"{facts['driver_allocs']} driver calls, {format_size(facts['reserved_bytes'])} taken"
    )
    yield (
        f"umfpy.find(address + {facts['found_offset']}) leads back to the allocation at "
        f"{facts['found_base']:#x}"
    )
