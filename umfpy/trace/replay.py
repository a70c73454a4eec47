"""Playing a trace back to a pool."""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from umfpy.arguments import check_kind
from umfpy.errors import OutOfMemoryError
from umfpy.trace.trace import SAME_STREAM, Trace


class ReplayPool(Protocol):
    """What a pool must have to be replayed to; every pool of umfpy does."""

    def allocate(self, size: int, alignment: int = 0, stream: Any = None) -> Any: ...

    def stats(self) -> Any: ...


@dataclass(frozen=True)
class ReplayResult:
    """What happened; all sizes are bytes."""

    allocations: int  #: that the pool served
    frees: int  #: of those
    failed: int  #: allocations that the pool refused for lack of memory
    refusal: str  #: what the pool said to the first of them; empty if it refused none
    peak_live_bytes: int  #: the most that was live at once, as requested
    peak_reserved_bytes: int  #: the most that the pool held
    elapsed_ns: int  #: of the calls to the pool, without that of walking through the trace

    @property
    def utilization(self) -> float:
        """Peak live over peak reserved; 1.0 if nothing was ever held."""
        if self.peak_reserved_bytes == 0:
            return 1.0
        return self.peak_live_bytes / self.peak_reserved_bytes

    @property
    def ns_per_op(self) -> float | None:
        """Time of one call to the pool, on average; None for a trace without events."""
        calls = self.allocations + self.frees + self.failed
        return self.elapsed_ns / calls if calls else None


def replay(
    trace: Trace, pool: ReplayPool, *, at_end: Callable[[], object] | None = None
) -> ReplayResult:
    """Make the allocations and frees of `trace` on `pool`, and free at the end what is left.

    An allocation for which there is no memory is counted, its free left out, and the replay goes
    on.  Other errors of the pool pass through.  `pool` should be new: its peaks are reported.
    The garbage collector rests meanwhile, so that no other work is timed.

    Parameters
    ----------
    at_end
        Called after the last event, before what is left is freed.
    """
    check_kind(trace, Trace, "trace", "a umfpy.trace.Trace, as Trace.load makes it of a file")
    live: list[Any] = [None] * trace.slots
    walk = _time_walk(trace)
    collecting = gc.isenabled()
    gc.disable()
    try:
        start = time.perf_counter_ns()
        refusals, skipped = _play(trace, pool, live)
        elapsed = time.perf_counter_ns() - start
    finally:
        if collecting:
            gc.enable()
    stats = pool.stats()
    if at_end is not None:
        at_end()
    live.clear()
    return ReplayResult(
        allocations=trace.allocations - len(refusals),
        frees=trace.frees - skipped,
        failed=len(refusals),
        refusal=refusals[0] if refusals else "",
        peak_live_bytes=stats.peak_requested_bytes,
        peak_reserved_bytes=stats.peak_reserved_bytes,
        elapsed_ns=max(elapsed - walk, 0),
    )


def _play(trace: Trace, pool: ReplayPool, live: list[Any]) -> tuple[list[str], int]:
    """Return what was said to each failed allocation, and how many frees were left out for it."""
    refusals: list[str] = []
    skipped = 0
    allocate = pool.allocate
    for code, size, stream in trace.operations():
        if code >= 0:
            try:
                live[code] = allocate(size, 0, stream)
            except OutOfMemoryError as error:
                refusals.append(str(error))
        elif live[~code] is None:
            skipped += 1
        else:
            if stream != SAME_STREAM:
                live[~code].free(stream)
            live[~code] = None  # dropping an allocation frees it
    return refusals, skipped


def _time_walk(trace: Trace) -> int:
    """Return the nanoseconds that `_play` spends on anything but the pool."""
    live: list[Any] = [None] * trace.slots

    def walk() -> int:
        start = time.perf_counter_ns()
        for code, size, stream in trace.operations():
            if code >= 0:
                live[code] = size
            elif live[~code] is None:
                pass
            elif stream == SAME_STREAM:
                live[~code] = None
        return time.perf_counter_ns() - start

    return int(statistics.median(walk() for _ in range(3)))
