"""The machine, Python, and umfpy's own compiled core."""

from __future__ import annotations

import platform
from typing import Any

import umfpy
from umfpy.cli.checks.finding import Finding, State
from umfpy.errors import UmfpyError
from umfpy.pools.pool import Pool
from umfpy.providers.host import HostProvider

_PROBE_BYTES = 1 << 20


def check() -> Finding:
    """Allocate host memory through a pool, and check its structures."""
    facts: dict[str, Any] = {
        "umfpy": umfpy.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
    }
    try:
        provider = HostProvider()
        free, total = provider.memory_info()
        facts |= {"host_free_bytes": free, "host_total_bytes": total}
        facts["page_bytes"] = provider.granularity()
        with Pool(provider) as pool, pool.allocate(_PROBE_BYTES):
            pool.check()
    except (UmfpyError, OSError) as error:
        return Finding(
            "umfpy",
            State.PROBLEM,
            f"a pool of host memory does not work: {error}",
            facts,
            "look at the limits on memory (ulimit -v, the container's), then reinstall umfpy",
        )
    return Finding("umfpy", State.OK, "the core works", facts)
