"""What a manager's pools hold from the provider together: limits, peaks, and getting it back."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from umfpy.core.pages import Totals
from umfpy.errors import OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.rungs import Trimmed, brought_back, together
from umfpy.pools.shortage import MOST, can_ever_hold
from umfpy.pools.source import neighbours
from umfpy.provider import Capability
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.manager.budget import Budget
    from umfpy.manager.paged import PagedPool
    from umfpy.pools.base import ProviderPool

T = TypeVar("T")


class Holdings:
    """Lets the pools of one manager grow, and shrinks them when memory is short.

    Attributes
    ----------
    totals
        Sums over the pools' extent maps.
    pools
        The persistent pool, and those of the layout.
    window
        The capture of the manager that is open, or None.
    """

    def __init__(
        self,
        manager: ProviderPool,
        budget: Budget | None,
        *,
        thrifty: bool,
    ) -> None:
        self.name = manager.name
        self.provider = manager.provider
        self._manager = weakref.ref(manager)
        self.totals = Totals()
        self.window: captures.Window | None = None
        self.pools: tuple[PagedPool, ...] = ()
        self._budget = budget
        self._thrifty = thrifty
        self._claiming = threading.Lock()
        self._claimed = 0  # bytes on their way to a pool's map
        if budget is not None:
            budget.join(self)

    def follow(self, pools: Iterable[PagedPool]) -> None:
        """Serve these pools from now on."""
        self.pools = tuple(pools)
        self.totals.follow(pool.map for pool in self.pools)

    def manager(self) -> ProviderPool | None:
        """Return the manager; None once it is gone."""
        return self._manager()

    @property
    def frozen(self) -> bool:
        """Whether nothing may go back to the provider: a capture is open, here or beside."""
        return self.window is not None or captures.is_frozen(self.provider)

    def _limit(self) -> int | None:
        manager = self._manager()
        return None if manager is None else manager.limit_bytes

    def _most(self) -> int:
        """Return the largest page that the manager may ever have."""
        limit = self._limit()
        bounds = [MOST if limit is None else limit]
        if self._budget is not None:
            bounds.append(self._budget.limit_bytes)
        return min(bounds)

    # Growing.

    def fetch(self, size: int, alignment: int, enter: Callable[[int], T]) -> T | None:
        """Take `size` bytes from the provider, and return what `enter(address)` makes of them.

        Idle pages of other pools go back first, rather than that the manager holds more than it
        ever did.  None if the provider, the limit or the budget has no more; whatever `enter`
        raises has the memory given back.  CaptureWouldBreak if only asking would spoil a capture.
        """
        with captures.growing(self.name, self.provider, size), self.admitting(size) as granted:
            if not granted:
                return None
            try:
                base = self.provider.alloc(size, alignment)
            except OutOfMemoryError:
                return None
            try:
                entered = enter(base)
            except BaseException:
                self.provider.free(base, size)
                raise
        self.totals.note()
        return entered

    @contextmanager
    def admitting(self, size: int) -> Iterator[bool]:
        """Make room for `size` bytes more, and set them aside; yields whether there are any left.

        Idle pages of other pools go back for them.  By the end they are in a pool's map, or have
        come to nothing.
        """
        if size > self._most():
            yield False
            return
        self._make_room(size)
        with self._claim(size) as granted:
            yield granted

    def _make_room(self, size: int) -> None:
        if self.frozen:
            return
        if self._thrifty:
            self.evict(self.totals.reserved + size - self.totals.peak_reserved, spare=True)
        missing = 0
        limit = self._limit()
        if limit is not None:
            missing = self.totals.reserved + size - limit
        if self._budget is not None:
            missing = max(missing, self._budget.held_bytes + size - self._budget.limit_bytes)
        self.evict(missing)

    @contextmanager
    def _claim(self, size: int) -> Iterator[bool]:
        """Set bytes aside, so that pools that grow at once keep to the limit together."""
        limit = self._limit()
        with self._claiming:
            held = self.totals.reserved + self._claimed
            granted = limit is None or held + size <= limit
            self._claimed += size * granted
        try:
            if not granted or self._budget is None:
                yield granted
            else:
                with self._budget.claim(size) as granted_by_all:
                    yield granted_by_all
        finally:
            with self._claiming:
                self._claimed -= size * granted

    # Shrinking.

    def evict(self, missing: int, *, spare: bool = False) -> int:
        """Give idle pages back until `missing` bytes went, or none are left; return the bytes.

        `spare`: not those of persistent memory.  Pools that grow just now in another thread are
        passed by.
        """
        released = 0
        for pool in reversed(self.pools):  # layouts list the large pages last
            if released >= missing:
                break
            if not (spare and pool.keeps_idle):
                released += pool.evict(missing - released)
        return released

    def release_idle(self) -> int:
        """Give every idle page back, those that sleep as well; return the bytes of memory.

        What the provider keeps of that for reuse goes to the device.
        """
        released = sum(pool.release_idle() for pool in self.pools)
        if Capability.RESERVE in self.provider.capabilities:
            with captures.shrinking(self.provider) as may:
                if may and not self.frozen:
                    self.provider.trim()
        return released

    def trim(self) -> Trimmed:
        """Give back all memory that nothing is in, parts of pages too."""
        return together(pool.trim() for pool in self.pools)

    def reclaim(self, size: int) -> bool:
        """Memory has run out for `size` bytes: get some back; whether any came.

        Asks the manager's own pools, the others of its budget, then all of the source; nobody for
        more than manager or device can ever have.  Called without the lock of any pool.
        """
        if self.frozen or not can_ever_hold(self.provider, self._most(), size):
            return False
        went = [self.trim()]
        if self._budget is not None:
            went += [other.trim() for other in self._budget.members() if other is not self]
        went += [pool.trim() for pool in neighbours(self.provider, (self._manager(), *self.pools))]
        return brought_back(together(went))

    def out_of_memory(self, size: int, pool: PagedPool) -> OutOfMemoryError:
        """Return the error for a request of `size` bytes that nothing could be found for."""
        limit = self._limit()
        reserved = self.totals.reserved
        info = self.provider.memory_info()
        words = [
            f"pool {pool.name!r} of {self.name!r} has no {format_size(size)} ({size} bytes) left",
            f"the manager holds {format_size(reserved)}",
        ]
        if info is not None:
            words.append(f"device: {format_size(info[0])} of {format_size(info[1])} free")
        if limit is not None:
            words.append(f"limit_bytes is {format_size(limit)}")
        if self._budget is not None:
            words.append(repr(self._budget))
        if self.frozen:
            words.append("a capture is open, during which no idle page is given back")
        words.append(self._remedy(size, pool.page_bytes(size)))
        return OutOfMemoryError(
            "; ".join(words),
            requested=size,
            used=sum(one.map.counters()["used"] for one in self.pools),
            reserved=reserved,
            limit=limit if self._budget is None else self._budget.limit_bytes,
            largest_free=pool.stats().largest_free_bytes,
            provider=self.provider.name,
        )

    def _remedy(self, size: int, page: int) -> str:
        """Say what to do where `page` bytes for `size` could not be had."""
        if page <= size or can_ever_hold(self.provider, self._most(), page):
            return "release handles, or raise the limit"
        return (
            f"each new page of it takes {format_size(page)} ({page} bytes), more than device and "
            "limits allow in all: lower page_size (of a preset max_page_size), or raise the limits"
        )
