"""Replaying a trace often enough to know what it costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from umfpy.trace.metered import Metered
from umfpy.trace.replay import ReplayResult, replay
from umfpy.trace.trace import Trace

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.provider import Provider


@dataclass(frozen=True)
class Measurement:
    """One trace on one pool; sizes are bytes, and everything ends with the trace's last event."""

    result: ReplayResult
    peak_reserved_bytes: int  #: the most that the provider held of its device
    provider_allocs: int  #: calls that succeeded
    provider_frees: int
    ns_per_op: float | None  #: median over the repetitions; None for an empty trace
    modelled_driver_us: float | None  #: by the emulated driver's clock; None on real ones

    @property
    def utilization(self) -> float:
        """Peak live over peak reserved; 1.0 if nothing was ever held."""
        if self.peak_reserved_bytes == 0:
            return 1.0
        return self.result.peak_live_bytes / self.peak_reserved_bytes


@dataclass(frozen=True)
class Target:
    """What traces are replayed on."""

    provider: Provider
    make_pool: Callable[[Provider], ProviderPool]
    capacity: int | None = None  #: the most bytes to take from the provider; None: all it has
    clock_us: Callable[[], float] | None = None  #: of the emulated driver, where it is one

    def measure(
        self, trace: Trace, *, repeat: int = 3, advance: Callable[[], object] = lambda: None
    ) -> Measurement:
        """Replay `trace` once for the counts, then `repeat` times for the time.

        Each replay has a new pool, so that taking memory from the driver is part of the time.
        `advance` is called after each.
        """
        counts = self._count(trace)
        advance()
        times = []
        for _ in range(repeat):
            with self._pool(self._source()) as pool:
                times.append(replay(trace, pool).ns_per_op)
            advance()
        known = [time for time in times if time is not None]
        return replace(counts, ns_per_op=statistics.median(known) if known else None)

    def _count(self, trace: Trace) -> Measurement:
        source = Metered(self.provider, self.capacity)
        source.trim()  # what others have left behind
        clock = self.clock_us or (lambda: 0.0)
        end: list[tuple[int, int, float]] = []
        with self._pool(source) as pool:
            start = clock()
            result = replay(
                trace, pool, at_end=lambda: end.append((source.allocs, source.frees, clock()))
            )
        ((allocs, frees, now),) = end
        return Measurement(
            result=result,
            peak_reserved_bytes=source.peak_bytes,
            provider_allocs=allocs,
            provider_frees=frees,
            ns_per_op=None,
            modelled_driver_us=now - start if self.clock_us else None,
        )

    def _source(self) -> Provider:
        """Return the provider, metered only where that keeps a capacity: it takes time."""
        if self.capacity is None:
            return self.provider
        return Metered(self.provider, self.capacity)

    @contextmanager
    def _pool(self, source: Provider) -> Iterator[ProviderPool]:
        """Yield a new pool over `source`; everything is given back at the end."""
        with self.make_pool(source) as pool:
            yield pool
        if pool.provider is not source:
            pool.provider.close()
