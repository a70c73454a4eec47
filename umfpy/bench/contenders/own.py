"""umfpy's default pool, and the object that costs nothing but being one."""

from __future__ import annotations

from itertools import repeat
from time import perf_counter_ns

import umfpy
from umfpy.bench.absent import Absent
from umfpy.bench.contenders.base import Contender, NativePool, PythonPool
from umfpy.bench.contenders.simulated import SimulatedProvider
from umfpy.bench.native.loop import PoolFunctions


class OwnPool(PythonPool):
    def __init__(self) -> None:
        self.pool = umfpy.Pool(SimulatedProvider())
        self.allocate = self.pool.allocate

    def close(self) -> None:
        self.pool.close()


class OwnNativePool(NativePool):
    """The C interface pins its pool for the rest of the process; `close` leaves it empty."""

    def __init__(self) -> None:
        self.pool = umfpy.Pool(SimulatedProvider())
        self._interface = self.pool.c_interface()

    def functions(self) -> PoolFunctions:
        interface = self._interface
        return PoolFunctions(interface.param, interface.malloc, interface.free)

    def counters(self) -> dict[str, int]:
        now = self.pool.stats()
        return {
            "reserved_bytes": now.reserved_bytes,
            "peak_reserved_bytes": now.peak_reserved_bytes,
            "provider_allocs": now.provider_allocs,
            "provider_frees": now.provider_frees,
            "metadata_bytes": now.metadata_bytes,
        }

    def close(self) -> None:
        self.pool.close()


class EmptyObjects(PythonPool):
    """Makes and drops objects of a compiled class without any content."""

    def __init__(self) -> None:
        try:
            from umfpy.bench._baseline import Empty
        except ImportError as error:
            raise Absent(f"the compiled baseline is not built: {error}") from error
        self.allocate = lambda size: Empty()
        self._type = Empty

    def time_pairs(self, size: int, count: int) -> int:
        make = self._type
        start = perf_counter_ns()
        for _ in repeat(None, count):
            make()
        return perf_counter_ns() - start

    def close(self) -> None:
        """There is nothing to give back."""


UMFPY = Contender(
    "umfpy",
    "umfpy.Pool",
    python=OwnPool,
    native=OwnNativePool,
    version=lambda: umfpy.__version__,
)
EMPTY = Contender("empty", "an empty Cython object", python=EmptyObjects)
