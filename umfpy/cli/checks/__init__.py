"""What ``umfpy doctor`` looks at: a module for each subject, with one function ``check``."""

from collections.abc import Callable

from umfpy.cli.checks import cuda, cupy, emulated, level_zero, opencl, system
from umfpy.cli.checks.finding import Finding, State

#: In the order in which they are told.
CHECKS: tuple[Callable[[], Finding], ...] = (
    system.check,
    cuda.check,
    emulated.check,
    level_zero.check,
    opencl.check,
    cupy.check,
)

__all__ = ["CHECKS", "Finding", "State"]
