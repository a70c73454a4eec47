"""umfpy inside other libraries; each module imports its library only when it is used."""

from typing import TYPE_CHECKING

from umfpy.lazy import lazy

if TYPE_CHECKING:
    from umfpy.integrations import arrays, cupy, dlpack, pyopencl, pytorch, sycl

__all__ = ["arrays", "cupy", "dlpack", "pyopencl", "pytorch", "sycl"]

__getattr__, __dir__ = lazy(__name__, submodules=__all__)
