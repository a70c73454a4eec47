"""Where a run took place, and with which versions."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import umfpy
from umfpy.bench.contenders.registry import CONTENDERS
from umfpy.bench.contenders.umf import DEFAULTS, POOLING, DisjointParams


def describe_machine() -> dict[str, Any]:
    """Return what a reader needs to judge the numbers by."""
    return {
        "umfpy": umfpy.__version__,
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpu": cpu_model(),
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "versions": {name: c.version() for name, c in CONTENDERS.items()},
        "umf_disjoint": {"umf": as_dict(DEFAULTS), "umf-pooling": as_dict(POOLING)},
    }


def cpu_model() -> str:
    """Return the processor's name as Linux has it, or what the platform module knows."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or "unknown"


def as_dict(params: DisjointParams) -> dict[str, int]:
    return {
        name: getattr(params, name)
        for name in ("slab_min_size", "max_poolable_size", "capacity", "min_bucket_size")
    }
