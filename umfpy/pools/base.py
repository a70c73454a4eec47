"""What all pools share above the compiled core: statistics, trimming, and the end."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from umfpy import leaving
from umfpy.arguments import check_flag, check_kind
from umfpy.closing import Closing
from umfpy.core.pool import BasePool, enter_pool
from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.pools import captures
from umfpy.pools.cuts import CutExtents
from umfpy.pools.departure import Departure, departures
from umfpy.pools.descent import Descent
from umfpy.pools.idle import Due, Idle, IdleThread, IdleWatch
from umfpy.pools.lock import GrowthLock
from umfpy.pools.nested import as_provider
from umfpy.pools.rungs import Trimmed, check_rung, choose
from umfpy.pools.stats import PoolStats
from umfpy.provider import Capability, Provider, refuse_copy
from umfpy.units import parse_size


class _EnteredWhenMade(type):
    """Has a pool asked for memory, and closed when dropped, only once its `__init__` is through."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        pool = super().__call__(*args, **kwargs)
        pool._made = True
        enter_pool(pool)
        leaving.enter(pool, lambda pool: pool.trim())
        return pool


class ProviderPool(BasePool, Closing, metaclass=_EnteredWhenMade):
    """A pool that takes extents from a provider and can give them back."""

    _made = False  #: Whether `__init__` is through.
    #: Whether an extent goes down a rung as a whole or not at all.
    _lowers_whole = False

    def __init__(
        self,
        provider: Provider | ProviderPool,
        *,
        name: str | None = None,
        zero: bool = False,
        limit_bytes: int | str | None = None,
        direct: bool = False,
        low_from: int = 0,
        idle: Idle | None = None,
    ) -> None:
        if name is not None:
            check_kind(name, str, "name", "text")
        check_flag(zero, "zero")
        super().__init__(
            as_provider(provider), name=name, zero=zero, direct=direct, low_from=low_from
        )
        #: What the provider's pieces are, where an extent is not one of them.
        self._cuts = CutExtents()
        #: One growth at a time: others wait, and look again before they grow too.
        self._growing = GrowthLock()
        self._provider_allocs = 0
        self._provider_frees = 0
        self._idle_watch: IdleWatch | None = None
        self._idle_thread: IdleThread | None = None
        self.limit_bytes = limit_bytes
        if idle is not None:
            self._follow(idle)

    @property
    def limit_bytes(self) -> int | None:
        """The most bytes that the pool may hold from its provider; None for no limit.

        May be set at any time, as bytes or as text (``"4GiB"``).  Below what is held already it
        takes effect as memory goes back; nothing live is touched.
        """
        return self._limit_bytes

    @limit_bytes.setter
    def limit_bytes(self, limit: int | str | None) -> None:
        self._limit_bytes = None if limit is None else parse_size(limit)

    def stats(self) -> PoolStats:
        """Return the pool's statistics, all of one moment."""
        now = self.map.counters()
        if self._idle_watch is not None:
            now |= {f"peak_{name}": peak for name, peak in self._idle_watch.peaks.seen(now).items()}
        return PoolStats(
            requested_bytes=now["requested"],
            used_bytes=now["used"],
            reserved_bytes=now["reserved"],
            peak_requested_bytes=now["peak_requested"],
            peak_used_bytes=now["peak_used"],
            peak_reserved_bytes=now["peak_reserved"],
            largest_free_bytes=now["largest_free"],
            metadata_bytes=now["metadata"],
            live_allocations=now["allocations"] - now["frees"],
            allocations=now["allocations"],
            frees=now["frees"],
            extents=now["extents"],
            provider_allocs=self._provider_allocs,
            provider_frees=self._provider_frees,
            hidden_bytes=now["hidden"],
            unbacked_bytes=now["unbacked"],
        )

    def reset_peaks(self) -> None:
        """Let every peak start again from what its counter is now."""
        if self._idle_watch is None or self.map.foreign:
            self.map.reset_peaks()
        else:
            self._idle_watch.peaks.restart()

    @property
    def frozen(self) -> bool:
        """Whether memory has to stay, and nobody may wait for the device: a capture is open."""
        return captures.is_frozen(self.provider)

    def synchronize(self) -> None:
        """Wait for the device; then memory freed on any stream may be used on all of them.

        Raises CaptureWouldBreak during a capture on the device.
        """
        while not self._wait():
            captures.refuse_waiting(self.name, self.provider)

    def _wait(self) -> bool:
        """Wait for the device, and return True; False, with nothing done, during a capture."""
        if Capability.STREAMS not in self.provider.capabilities or self.map.foreign:
            return True
        with self._growing, captures.shrinking(self.provider) as may:
            if may:
                self._wait_for_all()
            return may

    def _wait_for_all(self) -> None:
        self.map.retire()
        # If the wait fails, what was set apart stays so until one succeeds: the device may still
        # be at work on it.
        self.provider.synchronize()
        self.map.retired()

    def trim(self, keep_bytes: int | str = 0, *, rung: str = "free") -> Trimmed:
        """Have free memory go down, and return how many bytes did.

        Parameters
        ----------
        keep_bytes
            So much stays ready for requests, or in use, in bytes or as text.
        rung
            How far down, the gentlest first: ``"dalloc"`` makes memory unusable and keeps it,
            ``"purge_lazy"`` lets its contents go, ``"decommit"`` gives the memory back and keeps
            the addresses, ``"purge_force"`` drops the contents at once, and ``"free"`` gives
            memory and addresses back.  Where the provider lacks it, the next one is taken.

        Returns
        -------
        Trimmed
            The bytes, an int, whose ``rung`` is the one that was taken.  What went down before
            is not counted again, also where its provider had kept it and only now gives it back.

        Raises
        ------
        InvalidArgument
            `rung` is none of these.

        Notes
        -----
        Waits for the device first, so that nothing goes that a stream still uses.  Raises what
        the provider does; what had not gone by then is as it was.  Nothing goes during a capture
        on the device.

        Addresses go back only with all of an extent.  The gentler rungs reach any free memory
        that the provider can cut out, largest ranges first; so does ``"free"`` where addresses
        and memory are apart (`Capability.RESERVE`), which gives the device that memory back, and
        what the provider keeps for reuse.

        A call from within a provider or a callback of another pool does not wait while this
        pool is growing in another thread: it returns 0.
        """
        return self._trim(parse_size(keep_bytes), rung=check_rung(rung))

    def _trim(self, keep: int = 0, *, wait: bool | None = None, rung: str = "free") -> Trimmed:
        with self._shrinking(wait) as may:
            if not may:
                return Trimmed()
            self._join_streams()
            return self._lower(choose(rung, self._ladder), keep)

    @contextmanager
    def _shrinking(self, wait: bool | None = None) -> Iterator[bool]:
        """Hold the growth lock while memory goes; yields whether it may: not during a capture.

        `wait`: as of the lock, which may be another thread's.
        """
        if self.frozen or self.map.foreign or not self._growing.enter(wait=wait):
            yield False
            return
        try:
            with captures.shrinking(self.provider) as may:
                yield may and not self.frozen  # a capture may have been opened meanwhile
        finally:
            self._growing.leave()

    @property
    def _ladder(self) -> Capability:
        """What the provider can do with memory that goes down and stays in this pool."""
        return self.provider.capabilities

    def _lower(self, rung: str, keep: int) -> Trimmed:
        """Take a rung that there is."""
        if rung != "free":
            size = self._descend(rung, keep)
            return Trimmed(size, rung if size else None)
        before = self._provider_frees
        size = self._release_free(keep)
        kept = 0
        if Capability.RESERVE in self._ladder:
            size += self._descend("decommit", keep)
            kept = self.provider.trim()
        changed = size or kept or self._provider_frees > before
        return Trimmed(size, rung if changed else None)

    def _descend(self, rung: str, keep: int) -> int:
        descent = Descent(
            self.map, self.provider, self._cuts, rung, self.synchronize, whole=self._lowers_whole
        )
        return descent.descend(keep)

    # Memory that is not needed.

    def _follow(self, policy: Idle, clock: Callable[[], float] = time.monotonic) -> None:
        """Have idle memory go down as a policy says; `clock` returns the time in seconds."""
        if not isinstance(policy, Idle):
            raise InvalidArgument(f"idle must be a umfpy.Idle, not {policy!r}")
        self._idle_watch = IdleWatch(policy, self.map, clock)
        if policy.thread:
            self._idle_thread = IdleThread(self, self._idle_watch)

    def sweep(self) -> list[Trimmed]:
        """End an interval of the pool's idle policy, and have what was idle go down.

        Returns
        -------
        list of Trimmed
            What went, one entry for each rung by which any did, the most aggressive first.

        Raises
        ------
        InvalidArgument
            The pool has no policy.

        Notes
        -----
        Otherwise as `trim`; see `Idle`.
        """
        if self._idle_watch is None:
            raise InvalidArgument(
                f"pool {self.name!r} has no policy for idle memory: make it with "
                "idle=umfpy.Idle(), or call trim()"
            )
        if self.map.foreign:
            return []
        return self._lower_idle(self._idle_watch, self._idle_watch.end_interval())

    def _lower_idle(self, watch: IdleWatch, dues: Sequence[Due]) -> list[Trimmed]:
        """Do what is due at the end of an interval; return what went."""
        went = []
        for due in dues:
            trimmed = self._trim(due.keep, rung=due.rung)
            if trimmed.rung is not None:
                watch.note(due)
                went.append(trimmed)
        return went

    def _idle_tick(self) -> None:
        """Sweep if an interval is over; what the provider refuses is tried again after the next."""
        watch = self._idle_watch
        if watch is not None and not self.closed:
            with contextlib.suppress(UmfpyError):
                self._lower_idle(watch, watch.end_if_over())

    def _join_streams(self) -> None:
        """Have an extent whose blocks were freed on several streams count as free."""
        if self.map.streams > 1 and self.map.extents:
            self.synchronize()

    def _release_free(self, keep: int) -> int:
        """Give back free extents, the largest first, while `keep` bytes stay ready.

        They leave the map before the device is waited for: what is freed meanwhile in other
        threads stays here, and nobody gets an extent that is about to go.
        """
        return self._give_up(self._let_leave(keep))

    def _give_up(self, leaving: list[Departure]) -> int:
        """Wait for the device, and free extents that have left the map, the last one first."""
        if leaving:
            self._wait_for_device(leaving)
        released = 0
        while leaving:
            departure = leaving.pop()
            try:
                departure.free()
            except BaseException:
                for other in leaving:
                    other.come_back()
                raise
            released += departure.backed
            self._provider_frees += 1
        return released

    def _let_leave(self, keep: int) -> list[Departure]:
        """Have extents leave the map; the last is the first to go."""
        leaving = []
        now = self.map.counters()
        ready = now["reserved"] - now["hidden"]
        for departure in departures(self.map, self._cuts):
            there = departure.ready
            if (not there or ready - there >= keep) and departure.leave():
                ready -= there
                leaving.append(departure)
        return leaving[::-1]

    def _wait_for_device(self, leaving: Sequence[Departure]) -> None:
        try:
            self.synchronize()
        except BaseException:
            for departure in leaving:
                departure.come_back(waited=False)
            self.map.retire(everything=True)  # a stream may still be using it
            raise

    def close(self) -> None:
        """Give everything back and refuse further requests; closing twice is fine.

        Live allocations stay valid.  A ResourceWarning reports them, with count and bytes, and
        each extent goes back with the last allocation in it; where addresses and memory are
        apart, the memory around them goes at once.  Raises what the provider does; closing again
        tries again.  During a capture on the device all that goes back once it is over.
        """
        if self.map.foreign:
            return
        closed_before = self.closed
        if self._idle_thread is not None:
            self._idle_thread.stop()
        self._end()
        if not closed_before:
            self._warn_of_live()

    def _end(self) -> None:
        """Give nothing more out, and everything back: after the capture if one is open."""
        with self._shrinking(wait=True) as may:
            if may:
                self._give_all()
            self.map.shut()
            if may:
                # What callers without the GIL freed before did not see the pool closed.
                self._give_all()
        if not may:
            captures.after(self, self._drain)

    def _warn_of_live(self) -> None:
        """Tell whoever closes the pool what is live in it."""
        left = self.stats()
        if left.live_allocations:
            warnings.warn(
                f"pool {self.name!r} was closed with {left.live_allocations} live allocations of "
                f"{left.requested_bytes} bytes; {left.reserved_bytes} bytes stay held for them",
                ResourceWarning,
                stacklevel=3,
            )

    def _drain(self) -> None:
        """Give everything back that is free now; after the capture if one is open."""
        # A destructor may get here in a thread that is growing some other pool, so that it must
        # not wait.  Whoever has the lock looks again after it has let go.
        while self._growing.enter():
            frees = self.map.counters()["frees"]
            try:
                with captures.shrinking(self.provider) as may:
                    may = may and not self.frozen
                    if may:
                        self._give_all()
            finally:
                self._growing.leave()
            if not may:
                captures.after(self, self._drain)
            if not may or self.map.counters()["frees"] == frees:
                return

    def _give_all(self) -> None:
        """Give back what is free, and the memory behind other free addresses."""
        self._join_streams()
        self._release_free(0)
        if Capability.RESERVE in self._ladder:
            self._descend("decommit", 0)

    def __del__(self) -> None:
        # At interpreter exit the driver may be gone already; the system takes the memory back.
        if sys.is_finalizing() or not (self._made or self._has_extents()):
            return
        try:
            self.close()
        except UmfpyError as error:
            warnings.warn(
                f"pool {self.name!r} could not be closed: {error}", ResourceWarning, stacklevel=2
            )

    def _has_extents(self) -> bool:
        # Even one that was never made may: a subclass can fail after it has allocated.  What our
        # own `__init__` did not get through has none, and may lack what `close` needs.
        return self.map is not None and bool(self.map.counters()["extents"])

    def __reduce__(self) -> NoReturn:
        refuse_copy(self)
