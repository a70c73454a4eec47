"""What all pools share above the compiled core: statistics, trimming, and the end."""

from __future__ import annotations

import sys
import warnings
from types import TracebackType
from typing import TypeVar

from umfpy.core.extents import Extent
from umfpy.core.pool import BasePool
from umfpy.errors import UmfpyError
from umfpy.pools.lock import GrowthLock
from umfpy.pools.nested import as_provider
from umfpy.pools.release import free_removed, put_back
from umfpy.pools.stats import PoolStats
from umfpy.provider import Capability, Provider
from umfpy.units import parse_size

Self = TypeVar("Self", bound="ProviderPool")


class ProviderPool(BasePool):
    """A pool that takes extents from a provider and can give them back."""

    def __init__(
        self,
        provider: Provider | ProviderPool,
        *,
        name: str | None = None,
        zero: bool = False,
        limit_bytes: int | str | None = None,
        direct: bool = False,
    ) -> None:
        super().__init__(as_provider(provider), name=name, zero=zero, direct=direct)
        #: One growth at a time: others wait, and look again before they grow too.
        self._growing = GrowthLock()
        self._provider_allocs = 0
        self._provider_frees = 0
        self.limit_bytes = limit_bytes

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
        )

    def reset_peaks(self) -> None:
        """Let every peak start again from what its counter is now."""
        self.map.reset_peaks()

    def synchronize(self) -> None:
        """Wait for the device; then memory freed on any stream may be used on all of them."""
        if Capability.STREAMS not in self.provider.capabilities or self.map.foreign:
            return
        with self._growing:
            self.map.retire()
            # If the wait fails, as it does while a stream is captured, what was set apart stays
            # so until one succeeds: the device may still be at work on it.
            self.provider.synchronize()
            self.map.retired()

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give wholly free extents back while at least `keep_bytes` stay held, and return how
        many bytes went.

        Waits for the device first, so that nothing goes that a stream still uses.  Raises what
        the provider's `free` does; what had not gone by then is kept.  A call from within a
        provider or a callback of another pool does not wait while this pool is growing in
        another thread: it returns 0.
        """
        return self._trim(parse_size(keep_bytes))

    def _trim(self, keep: int = 0, *, wait: bool | None = None) -> int:
        if self.map.foreign or not self.map.extents:
            return 0
        if not self._growing.enter(wait=wait):
            return 0
        try:
            self._join_streams()
            return self._release_free(keep)
        finally:
            self._growing.leave()

    def _join_streams(self) -> None:
        """Have an extent whose blocks were freed on several streams count as free."""
        if self.map.streams > 1:
            self.synchronize()

    def _release_free(self, keep: int) -> int:
        """Give back free extents, the largest first, while `keep` bytes stay held.

        They leave the map before the device is waited for: what is freed meanwhile in other
        threads stays here, and nobody gets an extent that is about to go.
        """
        removed = self._remove_free(keep)
        if removed:
            self._wait_for_removed(removed)
        released = 0
        while removed:
            extent = removed.pop()
            try:
                free_removed(extent)
            except BaseException:
                for other in removed:
                    put_back(other)
                raise
            released += extent.size
            self._provider_frees += 1
        return released

    def _remove_free(self, keep: int) -> list[Extent]:
        removed = []
        held = self.map.counters()["reserved"]
        for extent in sorted(self.map.free_extents(), key=lambda e: e.size, reverse=True):
            if held - extent.size >= keep and self.map.remove(extent):
                held -= extent.size
                removed.append(extent)
        return removed[::-1]  # the largest is the first to go

    def _wait_for_removed(self, removed: list[Extent]) -> None:
        try:
            self.synchronize()
        except BaseException:
            for extent in removed:
                put_back(extent)
            self.map.retire(everything=True)  # a stream may still be using it
            raise

    def close(self) -> None:
        """Give everything back and refuse further requests; closing twice is fine.

        Live allocations stay valid.  A ResourceWarning reports them, with count and bytes, and
        each extent goes back with the last allocation in it.  Raises what the provider does;
        closing again tries again.
        """
        if self.map.foreign:
            return
        closed_before = self.closed
        with self._growing:
            self._join_streams()
            self._release_free(0)
            self.map.shut()
            # What callers without the GIL freed before that did not see the pool closed.
            self._join_streams()
            self._release_free(0)
        left = self.stats()
        if closed_before:
            return
        if left.live_allocations:
            warnings.warn(
                f"pool {self.name!r} was closed with {left.live_allocations} live allocations of "
                f"{left.requested_bytes} bytes; {left.reserved_bytes} bytes stay held for them",
                ResourceWarning,
                stacklevel=2,
            )

    def _drain(self) -> None:
        """The pool is closed, and one more allocation was freed."""
        # A destructor may get here in a thread that is growing some other pool, so that it must
        # not wait.  Whoever has the lock looks again after it has let go.
        while self._growing.enter():
            try:
                self._join_streams()
                self._release_free(0)
            finally:
                self._growing.leave()
            if not self.map.free_extents():
                return

    def __del__(self) -> None:
        # At interpreter exit the driver may be gone already; the system takes the memory back.
        if sys.is_finalizing() or not hasattr(self, "_limit_bytes"):
            return
        try:
            self.close()
        except UmfpyError as error:
            warnings.warn(
                f"pool {self.name!r} could not be closed: {error}", ResourceWarning, stacklevel=2
            )

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
