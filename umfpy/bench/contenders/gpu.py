"""The pools of CuPy, RMM and PyTorch; each needs a CUDA device."""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Sequence
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from umfpy.bench.absent import Absent
from umfpy.bench.contenders.base import Contender, PythonPool
from umfpy.providers.emulated.library import is_emulated


def load(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise Absent(f"{package} is not installed: {error}") from error


def require_cuda() -> None:
    """Raise Absent if there is no real device: these libraries run on nothing else."""
    if is_emulated():
        raise Absent("the CUDA driver of this process is emulated, and has no CUDA runtime")
    driver = load("cuda.bindings.driver", "cuda-bindings")
    try:
        (result,) = driver.cuInit(0)
    except RuntimeError as error:
        raise Absent(f"there is no CUDA driver: {str(error).splitlines()[0]}") from error
    if result != driver.CUresult.CUDA_SUCCESS:
        raise Absent(f"the CUDA driver does not start: {result.name}")
    result, count = driver.cuDeviceGetCount()
    if result != driver.CUresult.CUDA_SUCCESS or count == 0:
        raise Absent("the CUDA driver finds no device")


class CupyPool(PythonPool):
    def __init__(self) -> None:
        cupy = load("cupy", "CuPy")
        require_cuda()
        self._pool = cupy.cuda.MemoryPool()
        self.allocate = self._pool.malloc

    def close(self) -> None:
        self._pool.free_all_blocks()


class RmmPool(PythonPool):
    """RMM's pool resource, through the object that its users hold, a DeviceBuffer."""

    def __init__(self) -> None:
        rmm = load("rmm", "RMM")
        require_cuda()
        resource = rmm.mr.PoolMemoryResource(rmm.mr.CudaMemoryResource(), 1 << 30)
        self.allocate = lambda size: rmm.DeviceBuffer(size=size, mr=resource)

    def close(self) -> None:
        """The resource goes with the last reference to it."""


class TorchPool(PythonPool):
    """PyTorch's caching allocator, by the calls that it offers to other libraries."""

    def __init__(self) -> None:
        self._cuda = load("torch", "PyTorch").cuda
        require_cuda()
        if not self._cuda.is_available():
            raise Absent("this PyTorch was built without CUDA")
        self._malloc = self._cuda.caching_allocator_alloc
        self._free = self._cuda.caching_allocator_delete
        self.allocate = self._malloc

    def time_pairs(self, size: int, count: int) -> int:
        malloc, free = self._malloc, self._free
        start = perf_counter_ns()
        for _ in repeat(None, count):
            free(malloc(size))
        return perf_counter_ns() - start

    def time_replacements(self, live: list[Any], steps: Sequence[tuple[int, int]]) -> int:
        malloc, free = self._malloc, self._free
        start = perf_counter_ns()
        for index, size in steps:
            old, live[index] = live[index], malloc(size)
            free(old)
        return perf_counter_ns() - start

    def drain(self, live: list[Any]) -> None:
        for ptr in live:
            self._free(ptr)
        live.clear()

    def close(self) -> None:
        self._cuda.empty_cache()


def version_of(*packages: str) -> str | None:
    """Return the version of the first of `packages` that is installed."""
    for package in packages:
        try:
            return importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


CUPY = Contender(
    "cupy",
    "CuPy MemoryPool",
    python=CupyPool,
    version=lambda: version_of("cupy-cuda13x", "cupy-cuda12x", "cupy"),
)
RMM = Contender(
    "rmm",
    "RMM PoolMemoryResource",
    python=RmmPool,
    version=lambda: version_of("rmm-cu13", "rmm-cu12", "rmm"),
)
TORCH = Contender(
    "torch", "PyTorch caching allocator", python=TorchPool, version=lambda: version_of("torch")
)
