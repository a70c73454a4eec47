"""The emulated drivers that come with umfpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from umfpy.cli.checks.finding import Finding, State
from umfpy.errors import DriverUnavailable
from umfpy.providers.emulated.level_zero_library import driver_library
from umfpy.providers.emulated.library import cuda_library


def check_cuda() -> Finding:
    """See whether the emulated CUDA driver was built."""
    return _check("CUDA", "cuda", cuda_library)


def check_level_zero() -> Finding:
    """See whether the emulated Level Zero driver was built."""
    return _check("Level Zero", "level_zero", driver_library)


def _check(title: str, driver: str, library: Callable[[], Path]) -> Finding:
    subject = f"emulated {title}"
    try:
        path = library()
    except DriverUnavailable as error:
        return Finding(subject, State.PROBLEM, str(error))
    return Finding(
        subject,
        State.OK,
        f"for any program: umfpy emulate {driver} -- PROGRAM",
        {"library": str(path)},
    )
