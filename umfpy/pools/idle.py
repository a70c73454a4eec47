"""Memory that was not needed for a while goes down by itself."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from umfpy.arguments import check_flag, check_items, check_number
from umfpy.errors import InvalidArgument
from umfpy.pools.rungs import RUNGS, check_rung

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap
    from umfpy.pools.base import ProviderPool

_PEAKS = ("requested", "used", "reserved")


@dataclass(frozen=True)
class Idle:
    """What becomes of a pool's memory that nobody needed for one or more intervals.

    Idle is what lies beyond the most that was used at any time of an interval.  At its end, what
    was idle in it goes down the first rung; what was idle in the one before as well goes down the
    second, and so on.

    Attributes
    ----------
    rungs
        As of `Pool.trim`, the gentlest first.
    after_operations
        An interval ends after so many allocations and frees; None: not by their number.
    after_seconds
        An interval ends after so many seconds; None: not by time.
    thread
        Whether a thread of the pool's own looks after every `after_seconds`.  Without it the pool
        looks when it has to ask its provider for memory, and `Pool.sweep` ends an interval in
        any case.

    Raises
    ------
    InvalidArgument
        No rung, one that is none, or they do not become more aggressive; an interval of nothing;
        a thread without `after_seconds`.
    """

    rungs: Sequence[str] = ("purge_lazy", "decommit")
    after_operations: int | None = None
    after_seconds: float | None = None
    thread: bool = False

    def __post_init__(self) -> None:
        given = (self.rungs,) if isinstance(self.rungs, str) else self.rungs
        rungs = check_items(given, "rungs", "words")
        places = [RUNGS.index(check_rung(rung)) for rung in rungs]
        if not places or places != sorted(set(places)):
            raise InvalidArgument(
                f"rungs are at least one of {RUNGS}, each more aggressive than the one before, "
                f"not {rungs!r}"
            )
        object.__setattr__(self, "rungs", rungs)
        operations, seconds = self.after_operations, self.after_seconds
        if operations is not None:
            check_number(operations, "after_operations", least=1)
        if seconds is not None and not (
            isinstance(seconds, (int, float))
            and not isinstance(seconds, bool)
            and 0 < seconds <= threading.TIMEOUT_MAX
        ):
            raise InvalidArgument(
                f"after_seconds is a time above 0, of at most {threading.TIMEOUT_MAX:.0f}, "
                f"not {seconds!r}"
            )
        if check_flag(self.thread, "thread") and seconds is None:
            raise InvalidArgument("a thread looks after every after_seconds: say how many")


class Peaks:
    """The peaks of a map for two, each of whom lets them start again at times of their own.

    The map has one set: what it has to forget for an interval is put aside for the others.
    """

    def __init__(self, space: ExtentMap) -> None:
        self._space = space
        self._lock = threading.RLock()  # the garbage collector may come by in the middle
        self._aside = dict.fromkeys(_PEAKS, 0)
        self._in_interval = 0

    def seen(self, now: dict[str, int]) -> dict[str, int]:
        """Return the peaks since `restart`; `now` are the counters of the map."""
        aside = self._aside
        return {name: max(now[f"peak_{name}"], aside[name]) for name in _PEAKS}

    def restart(self) -> None:
        """Let every peak start again from what its counter is now; the interval's goes on."""
        with self._lock:
            before = self._space.reset_peaks()
            self._in_interval = max(self._in_interval, before["peak_used"])
            self._aside = dict.fromkeys(_PEAKS, 0)

    def next_interval(self) -> tuple[int, int]:
        """Begin the next interval; return the bytes that were used in this: at most, and now."""
        with self._lock:
            before = self._space.reset_peaks()
            peak = max(self._in_interval, before["peak_used"])
            self._aside = self.seen(before)
            self._in_interval = 0
        return peak, before["used"]


class Due(NamedTuple):
    """What is to be done at the end of an interval: a rung, and the bytes to keep."""

    rung: str
    keep: int
    operations: int  #: of the pool, when the interval ended


class IdleWatch:
    """What a pool's policy has seen of it so far.

    An interval is ended by one thread, whoever else looks at the same time.

    Attributes
    ----------
    peaks
        The pool's peaks, of which the intervals' are part.
    """

    def __init__(self, policy: Idle, space: ExtentMap, clock: Callable[[], float]) -> None:
        self.policy = policy
        self.peaks = Peaks(space)
        self._clock = clock
        self._space = space
        self._lock = threading.RLock()  # as that of the peaks
        self._peaks_before: tuple[int, ...] = ()  # of the last intervals, the latest first
        self._operations = self._count()
        self._used = 0
        self._since = clock()
        self._done: dict[str, tuple[int, int]] = {}

    def remaining(self) -> float:
        """Return the seconds until an interval is over by time."""
        assert self.policy.after_seconds is not None
        return max(self._since + self.policy.after_seconds - self._clock(), 0.0)

    def end_if_over(self) -> list[Due]:
        """Do as `end_interval` if an interval is over and nobody else is ending it."""
        if not self._lock.acquire(blocking=False):
            return []
        try:
            return self.end_interval() if self._is_over() else []
        finally:
            self._lock.release()

    def end_interval(self) -> list[Due]:
        """Begin the next interval, and return what is to be done.

        The most aggressive rung comes first: what it leaves is for the gentler ones.
        """
        with self._lock:
            self._since = self._clock()
            self._operations = operations = self._count()
            peak, used = self.peaks.next_interval()
            if not peak == used == self._used:  # allocations were resized, if nothing else
                self._done.clear()
            self._used = used
            peaks = (peak, *self._peaks_before)
            self._peaks_before = peaks = peaks[: len(self.policy.rungs)]
        keep, steps = 0, []
        for rung, peak in zip(self.policy.rungs, peaks, strict=False):
            keep = max(keep, peak)
            if not self._is_done(rung, keep, operations):
                steps.append(Due(rung, keep, operations))
        return steps[::-1]

    def note(self, due: Due) -> None:
        """Remember that it was done: unless something has happened, there is no more to do."""
        self._done[due.rung] = (due.operations, due.keep)

    def _is_over(self) -> bool:
        operations, seconds = self.policy.after_operations, self.policy.after_seconds
        return (operations is not None and self._count() - self._operations >= operations) or (
            seconds is not None and self._clock() - self._since >= seconds
        )

    def _is_done(self, rung: str, keep: int, operations: int) -> bool:
        at, kept = self._done.get(rung, (-1, 0))
        return at == operations and kept <= keep

    def _count(self) -> int:
        now = self._space.counters()
        return now["allocations"] + now["frees"]


class IdleThread:
    """Looks at a pool from time to time, until that is closed or gone."""

    def __init__(self, pool: ProviderPool, watch: IdleWatch) -> None:
        self._stop = threading.Event()
        # The pool is held weakly, by a thread that nothing but the pool keeps going.
        stop = self._stop
        alive = weakref.ref(pool, lambda _: stop.set())
        self._thread = threading.Thread(
            target=look, args=(alive, watch, stop), name=f"{pool.name}-idle", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Have the thread end; it may be at work still."""
        self._stop.set()

    def join(self, timeout: float | None = None) -> bool:
        """Wait for the end of the thread; return whether it came."""
        self._thread.join(timeout)
        return not self._thread.is_alive()


def look(alive: Callable[[], ProviderPool | None], watch: IdleWatch, stop: threading.Event) -> None:
    """Look at a pool whenever an interval is over, until `stop` is set."""
    while not stop.wait(watch.remaining()):
        pool = alive()
        if pool is None:
            return
        pool._idle_tick()
        del pool
