"""What a contender offers: a pool for loops in Python, a pool for the loop in C, or both."""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat
from time import perf_counter_ns
from typing import Any

from umfpy.bench.native.loop import PoolFunctions


class NativePool(abc.ABC):
    """A pool that the C loop drives."""

    @abc.abstractmethod
    def functions(self) -> PoolFunctions:
        """Return its functions; good until `close`."""

    @abc.abstractmethod
    def counters(self) -> dict[str, int]:
        """Return at least reserved_bytes, peak_reserved_bytes and provider_allocs."""

    @abc.abstractmethod
    def close(self) -> None: ...


class PythonPool(abc.ABC):
    """A pool whose allocations are Python objects, freed when dropped.

    A pool of raw addresses overrides the loops, so that it is timed without a wrapper.
    """

    #: Bytes -> an object; the fastest way that the library offers to its users.
    allocate: Callable[[int], object]

    def time_pairs(self, size: int, count: int) -> int:
        """Allocate `size` bytes and drop them, `count` times; return nanoseconds."""
        allocate = self.allocate
        start = perf_counter_ns()
        for _ in repeat(None, count):
            allocate(size)
        return perf_counter_ns() - start

    def fill(self, sizes: Sequence[int]) -> list[Any]:
        """Return an allocation of each size."""
        return [self.allocate(size) for size in sizes]

    def time_replacements(self, live: list[Any], steps: Sequence[tuple[int, int]]) -> int:
        """Put a fresh allocation in place of an old one, for each (index, size)."""
        allocate = self.allocate
        start = perf_counter_ns()
        for index, size in steps:
            live[index] = allocate(size)
        return perf_counter_ns() - start

    def drain(self, live: list[Any]) -> None:
        """Drop what `fill` and the replacements left."""
        live.clear()

    @abc.abstractmethod
    def close(self) -> None:
        """Give everything back."""


@dataclass(frozen=True)
class Contender:
    """Somebody's memory pool.

    `python` and `native` open it; they raise `Absent` with the reason where it cannot take part.
    """

    name: str
    title: str
    python: Callable[[], PythonPool] | None = None
    native: Callable[[], NativePool] | None = None
    version: Callable[[], str | None] = lambda: None
    #: For a variant of another contender: the size in bytes up to which the two are the same.
    differs_above: int = 0
