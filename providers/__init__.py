"""The back ends, imported as ``umfpy.providers``."""

from typing import TYPE_CHECKING

from umfpy.lazy import lazy

if TYPE_CHECKING:
    from umfpy.providers import cuda, emulated, host, level_zero, opencl

__all__ = ["cuda", "emulated", "host", "level_zero", "opencl"]

__getattr__, __dir__ = lazy(__name__, submodules=__all__)
