"""CuPy's arrays in a pool of umfpy."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import umfpy
from umfpy.cli.checks.cupy import check as check_cupy
from umfpy.cli.checks.finding import State
from umfpy.cli.demonstration.act import Facts, keep
from umfpy.cli.demonstration.device import Device
from umfpy.units import format_size

_SHAPE = (1024, 1024)


def run(device: Device) -> Facts:
    """Make an array, find its memory, and drop it; without CuPy say so."""
    if check_cupy().state != State.OK:
        return {"installed": False}
    cupy = importlib.import_module("cupy")
    integration = importlib.import_module("umfpy.integrations.cupy")
    provider = device.open()
    with umfpy.Pool(provider) as pool:
        with integration.using(pool):
            array = cupy.empty(_SHAPE, dtype="float32")
        found = umfpy.find(array.data.ptr)
        facts: Facts = {
            "installed": True,
            "version": cupy.__version__,
            "array_bytes": array.nbytes,
            "found_bytes": found.size if found else None,
            "live_with_array": pool.stats().live_allocations,
        }
        del array, found
        facts["live_after"] = pool.stats().live_allocations
    provider.close()
    keep(facts["found_bytes"] == facts["array_bytes"], "the array lies in the pool", facts)
    keep(facts["live_after"] == 0, "dropping the array frees its memory", facts)
    return facts


def tell(facts: Facts) -> Iterator[str]:
    """Yield the lines for people."""
    if not facts["installed"]:
        yield 'CuPy is not installed; to see this: pip install "umfpy[cupy-cuda13x]"'
        return
    yield (
        f"CuPy {facts['version']}: an array of {format_size(facts['array_bytes'])} lies in the "
        f"pool: {facts['live_with_array']} allocation live"
    )
    yield f"dropped, it went back: {facts['live_after']} live"
