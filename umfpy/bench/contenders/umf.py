"""UMF's disjoint pool, from the PyPI package ``umf``, over simulated memory."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
from collections.abc import Sequence
from ctypes import POINTER, byref, c_int, c_size_t, c_uint64, c_void_p
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from umfpy.bench.absent import Absent
from umfpy.bench.contenders.base import Contender, NativePool, PythonPool
from umfpy.bench.contenders.simulated import fresh_range
from umfpy.bench.native.build import build
from umfpy.bench.native.loop import PoolFunctions, address_of


class DisjointParams(ctypes.Structure):
    """Sizes in bytes; `capacity` is the idle slabs that a bucket keeps."""

    _fields_ = [
        ("slab_min_size", c_uint64),
        ("max_poolable_size", c_uint64),
        ("capacity", c_uint64),
        ("min_bucket_size", c_uint64),
    ]


#: The library's defaults; for the smallest bucket, the cache line that the provider names.
DEFAULTS = DisjointParams(
    slab_min_size=64 << 10, max_poolable_size=2 << 20, capacity=4, min_bucket_size=64
)
#: The same, but nothing goes past the pool: no call of the provider once it is warm.
POOLING = DisjointParams(
    slab_min_size=64 << 10, max_poolable_size=2 << 30, capacity=4, min_bucket_size=64
)


class Simulated(ctypes.Structure):
    """``struct simulated``: the provider below the pool."""

    _fields_ = [
        ("next", c_uint64),
        ("page", c_uint64),
        ("allocs", c_uint64),
        ("frees", c_uint64),
        ("held", c_uint64),
        ("peak", c_uint64),
    ]


#: What the simulated memory rounds addresses to: a slab, so that slabs lie side by side.
PAGE = 64 << 10


class Libraries:
    """The compiled adapter, and UMF itself for calls without it."""

    def __init__(self) -> None:
        header, library = installed("umf.h"), installed("libumf.so.1")
        folder = library.parent
        # The adapter finds it by name: the loader has it already.
        self.umf = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
        self.adapter = build(
            ["umf_disjoint.c"],
            [f"-I{header.parent}", f"-L{folder}", f"-l:{library.name}", f"-Wl,-rpath,{folder}"],
        )
        self.create = self.adapter.bench_disjoint_create
        self.create.argtypes = [POINTER(Simulated), POINTER(DisjointParams), POINTER(c_void_p)]
        self.destroy = self.adapter.bench_disjoint_destroy
        self.destroy.argtypes = [c_void_p]
        self.malloc = self.umf.umfPoolMalloc
        self.malloc.argtypes, self.malloc.restype = [c_void_p, c_size_t], c_void_p
        self.free = self.umf.umfPoolFree
        self.free.argtypes, self.free.restype = [c_void_p, c_void_p], c_int


def installed(name: str) -> Path:
    """Return where the PyPI package put a file."""
    try:
        files = importlib.metadata.distribution("umf").files or []
    except importlib.metadata.PackageNotFoundError as error:
        raise Absent("UMF is not installed; pip install umf") from error
    for file in files:
        if file.name == name:
            path = Path(str(file.locate()))
            if path.exists():
                return path.resolve().with_name(name)
    raise Absent(f"the installed umf package has no {name}; pip install --force-reinstall umf")


@functools.cache
def libraries() -> Libraries:
    try:
        return Libraries()
    except OSError as error:
        raise Absent(f"UMF's library does not load: {error}") from error


class DisjointPool(NativePool):
    """The disjoint pool, with UMF's tracking on, as it is by default."""

    def __init__(self, params: DisjointParams = DEFAULTS) -> None:
        self._libraries = libraries()
        self._memory = Simulated(next=fresh_range(), page=PAGE)
        handle = c_void_p()
        result = self._libraries.create(byref(self._memory), byref(params), byref(handle))
        if result:
            raise Absent(f"UMF could not make a disjoint pool: umf_result_t {result}")
        self.handle = handle

    def functions(self) -> PoolFunctions:
        adapter = self._libraries.adapter
        return PoolFunctions(
            self.handle,
            address_of(adapter.bench_disjoint_malloc),
            address_of(adapter.bench_disjoint_free),
        )

    def counters(self) -> dict[str, int]:
        return {
            "reserved_bytes": self._memory.held,
            "peak_reserved_bytes": self._memory.peak,
            "provider_allocs": self._memory.allocs,
            "provider_frees": self._memory.frees,
        }

    def close(self) -> None:
        self._libraries.destroy(self.handle)


class DisjointFromPython(PythonPool):
    """Raw calls through ctypes: addresses in, addresses out."""

    def __init__(self) -> None:
        self._pool = DisjointPool()
        self._malloc, self._free = libraries().malloc, libraries().free
        self.allocate = lambda size: self._malloc(self._pool.handle, size)

    def time_pairs(self, size: int, count: int) -> int:
        malloc, free, handle = self._malloc, self._free, self._pool.handle
        start = perf_counter_ns()
        for _ in repeat(None, count):
            free(handle, malloc(handle, size))
        return perf_counter_ns() - start

    def time_replacements(self, live: list[Any], steps: Sequence[tuple[int, int]]) -> int:
        malloc, free, handle = self._malloc, self._free, self._pool.handle
        start = perf_counter_ns()
        for index, size in steps:
            old, live[index] = live[index], malloc(handle, size)
            free(handle, old)
        return perf_counter_ns() - start

    def drain(self, live: list[Any]) -> None:
        for ptr in live:
            self._free(self._pool.handle, ptr)
        live.clear()

    def close(self) -> None:
        self._pool.close()


def version() -> str | None:
    try:
        return importlib.metadata.version("umf")
    except importlib.metadata.PackageNotFoundError:
        return None


UMF = Contender(
    "umf", "UMF disjoint pool", python=DisjointFromPython, native=DisjointPool, version=version
)
UMF_POOLING = Contender(
    "umf-pooling",
    "UMF disjoint pool, max_poolable_size 2 GiB",
    native=lambda: DisjointPool(POOLING),
    version=version,
    differs_above=DEFAULTS.max_poolable_size,
)
