"""The emulated drivers that come with umfpy."""

from __future__ import annotations

from umfpy.cli.checks.finding import Finding, State
from umfpy.errors import DriverUnavailable
from umfpy.providers.emulated.library import cuda_library


def check() -> Finding:
    """See whether the emulated CUDA driver was built."""
    try:
        path = cuda_library()
    except DriverUnavailable as error:
        return Finding("emulated CUDA", State.PROBLEM, str(error))
    return Finding(
        "emulated CUDA",
        State.OK,
        "for any program: umfpy emulate cuda -- PROGRAM",
        {"library": str(path)},
    )
