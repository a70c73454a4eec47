"""The trace that comes with umfpy."""

from __future__ import annotations

from importlib import resources

from umfpy.trace.trace import Trace
from umfpy.trace.workload import SHIPPED


def load_shipped() -> Trace:
    """Return the trace of a small model in training; see `umfpy.trace.workload`."""
    with resources.as_file(resources.files("umfpy.trace") / "data" / SHIPPED) as path:
        return Trace.load(path)
