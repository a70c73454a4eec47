"""What ``umfpy doctor`` looks at: a module for each subject, with a function for each finding."""

from collections.abc import Callable

from umfpy.cli.checks import cuda, cupy, emulated, level_zero, opencl, system
from umfpy.cli.checks.finding import Finding, State

#: In the order in which they are told.
CHECKS: tuple[Callable[[], Finding], ...] = (
    system.check,
    cuda.check,
    emulated.check_cuda,
    level_zero.check,
    emulated.check_level_zero,
    opencl.check,
    cupy.check,
)

__all__ = ["CHECKS", "Finding", "State"]
