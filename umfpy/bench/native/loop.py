"""The C loop from Python: the structs of `loop.h`, and its functions."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import POINTER, c_int64, c_uint32, c_uint64, c_void_p
from typing import TypeAlias

from umfpy.bench.absent import Absent
from umfpy.bench.native.build import build
from umfpy.errors import UmfpyError

TAKE = 1
RELEASE = 2


class PoolFunctions(ctypes.Structure):
    """``struct pool``: addresses of functions, and what tells them which pool."""

    _fields_ = [("param", c_void_p), ("malloc", c_void_p), ("free", c_void_p)]


class Op(ctypes.Structure):
    _fields_ = [("size", c_uint64), ("slot", c_uint32), ("kind", c_uint32)]


OpArray: TypeAlias = "ctypes.Array[Op]"


class Ops(ctypes.Structure):
    _fields_ = [("at", POINTER(Op)), ("count", c_uint64)]


class Work(ctypes.Structure):
    _fields_ = [("prepare", Ops), ("timed", Ops), ("drain", Ops), ("slots", c_void_p)]


class Churn(ctypes.Structure):
    _fields_ = [
        ("random", c_uint64),
        ("low", c_uint64),
        ("high", c_uint64),
        ("logarithmic", c_uint32),
        ("slots", c_uint32),
        ("sequential", c_uint32),
        ("replace", c_uint32),
        ("turn", c_uint32),
        ("live", c_uint64),
        ("peak_live", c_uint64),
        ("held", POINTER(c_uint64)),
    ]


class AllocationFailed(UmfpyError):
    """The pool under test answered NULL, so that the sample means nothing."""


class Loop:
    """The compiled loop.  Its calls let the GIL go."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._run = library.bench_run
        self._run.argtypes = [POINTER(PoolFunctions), POINTER(Work), c_uint64]
        self._run.restype = c_int64
        self._run_threads = library.bench_run_threads
        self._run_threads.argtypes = [POINTER(PoolFunctions), POINTER(Work), c_uint32, c_uint64]
        self._run_threads.restype = c_int64
        self._generate = library.bench_generate
        self._generate.argtypes = [POINTER(Churn), POINTER(Op), c_uint64]
        self._generate.restype = None
        self.nothing = PoolFunctions(
            None, address_of(library.bench_null_malloc), address_of(library.bench_null_free)
        )

    def run(self, pool: PoolFunctions, work: Work, passes: int = 1) -> int:
        """Return the nanoseconds that the timed operations took, over all passes."""
        return checked(self._run(pool, work, passes))

    def run_threads(self, pool: PoolFunctions, works: Sequence[Work], passes: int = 1) -> int:
        """Run each work in a thread of its own; return first start to last end in ns."""
        array = (Work * len(works))(*works)
        return checked(self._run_threads(pool, array, len(works), passes))

    def generate(self, churn: Churn, count: int) -> OpArray:
        """Return the generator's next `count` operations."""
        ops = (Op * count)()
        self._generate(churn, ops, count)
        return ops


def checked(elapsed: int) -> int:
    if elapsed < 0:
        raise AllocationFailed("an allocation failed in the C loop")
    return elapsed


def address_of(function: object) -> int | None:
    """Return the address of a function of a loaded library."""
    return ctypes.cast(function, c_void_p).value  # type: ignore[arg-type]


@functools.cache
def load() -> Loop:
    """Return the loop, compiled once a process; raises Absent without a compiler."""
    return Loop(build(["loop.c", "churn.c"], ["-lm"]))


def why_absent() -> str | None:
    """Return why there is no C loop here, or None if there is."""
    try:
        load()
    except Absent as reason:
        return str(reason)
    return None
