"""pyopencl's pools, over whatever OpenCL device there is; PoCL makes one of the CPU."""

from __future__ import annotations

import importlib.metadata
import warnings
from typing import Any

from umfpy.bench.absent import Absent
from umfpy.bench.contenders.base import Contender, PythonPool


def open_queue() -> tuple[Any, Any]:
    """Return pyopencl and a queue of its first device."""
    try:
        import pyopencl
    except ImportError as error:
        raise Absent(f"pyopencl is not installed: {error}; pip install pyopencl") from error
    try:
        devices = [d for platform in pyopencl.get_platforms() for d in platform.get_devices()]
    except pyopencl.Error as error:
        raise Absent(f"no OpenCL platform: {error}; install pocl-opencl-icd") from error
    if not devices:
        raise Absent("no OpenCL device; install pocl-opencl-icd")
    return pyopencl, pyopencl.CommandQueue(pyopencl.Context(devices[:1]))


class OpenCLPool(PythonPool):
    """A pool of pyopencl's; what it hands out goes back to it when dropped."""

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        # Both kinds of pool are called to allocate; only one has a method of that name, too.
        self.allocate = pool

    def close(self) -> None:
        self._pool.free_held()


def buffer_pool() -> OpenCLPool:
    cl, queue = open_queue()
    return OpenCLPool(cl.tools.MemoryPool(cl.tools.ImmediateAllocator(queue)))


def svm_pool() -> OpenCLPool:
    cl, queue = open_queue()
    flags = cl.svm_mem_flags.READ_WRITE
    try:
        allocator = cl.tools.SVMAllocator(queue.context, flags=flags, queue=queue)
        with warnings.catch_warnings():
            # pyopencl calls its own SVM pool experimental.
            warnings.simplefilter("ignore")
            return OpenCLPool(cl.tools.SVMPool(allocator))
    except cl.Error as error:
        raise Absent(f"the OpenCL device has no shared virtual memory: {error}") from error


def version() -> str | None:
    try:
        return importlib.metadata.version("pyopencl")
    except importlib.metadata.PackageNotFoundError:
        return None


BUFFERS = Contender("pyopencl", "pyopencl MemoryPool", python=buffer_pool, version=version)
SVM = Contender("pyopencl-svm", "pyopencl SVMPool", python=svm_pool, version=version)
