"""From a request to the pool that serves it, while the layout may change under it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument
from umfpy.manager.errors import PoolCapacityExceeded
from umfpy.manager.holdings import Holdings
from umfpy.manager.layout import Layout
from umfpy.manager.modes import Mode, Persistence
from umfpy.manager.paged import PagedPool
from umfpy.manager.persistent import PersistentPool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream

LOG = logging.getLogger("umfpy.manager")

T = TypeVar("T")

_NEVER = 1 << 62  # requests


class Server:
    """Serves requests from persistent memory or from the layout, as mode and size want it.

    No lock is held meanwhile: a request that finds afterwards that the layout was changed gives
    back what it got, and tries again.

    Attributes
    ----------
    mode
        What requests are for now.
    changing
        Held by whoever changes layout, mode or capture.
    """

    def __init__(
        self,
        holdings: Holdings,
        persistent: PersistentPool,
        persistence: Persistence,
        layout: Layout,
        *,
        spill: bool,
    ) -> None:
        self.mode = persistence.first_mode
        self.changing = threading.RLock()
        self._holdings = holdings
        self._persistent = persistent
        self._match_sizes = persistence is Persistence.SIZE_MATCH
        self._spill = spill
        self._spilled = False
        self._requests = 0
        self._next_look = 0
        self._layout: Layout | None = None
        self.install(layout)

    # The layout.

    @property
    def layout(self) -> Layout:
        """The layout, once it is not being changed; InvalidArgument if the manager is closed."""
        layout = self._layout
        if layout is None:
            with self.changing:
                layout = self._layout
        if layout is None:
            raise InvalidArgument(
                f"{self._holdings.name!r} is closed; make a new manager, or keep this one open"
            )
        return layout

    def install(self, layout: Layout | None) -> None:
        """Serve from this layout; None: have requests wait for the next, see `changing`."""
        if layout is not None:
            self._holdings.follow((self._persistent, *layout.pools))
            names = ", ".join(pool.name for pool in layout.pools)
            LOG.info("%s: layout of %d pools: %s", self._holdings.name, len(layout.pools), names)
            for pool in layout.pools:
                pool.start_looking(self._requests)
            self._plan(layout)
        self._layout = layout

    # Idle pages.

    def look(self) -> int:
        """Give back what has been idle for its pool's period, and return the bytes.

        Happens by itself; O(pools + idle pages), every so many requests.
        """
        layout = self.layout
        released = sum(pool.look(self._requests) for pool in layout.pools)
        self._plan(layout)
        return released

    def _plan(self, layout: Layout) -> None:
        times = [pool.next_look() for pool in layout.pools]
        self._next_look = min((time for time in times if time is not None), default=_NEVER)

    # Requests.

    def allocate(
        self, size: SupportsIndex, alignment: SupportsIndex, stream: Stream, zero: bool
    ) -> tuple[Allocation, PagedPool]:
        """Return the allocation, and the pool that it comes from."""
        bytes_ = checked_size(size)
        return self._serve(
            bytes_, lambda pool: pool.allocate(bytes_, alignment, stream, zero), _free_allocation
        )

    def malloc(
        self, size: SupportsIndex, alignment: SupportsIndex, stream: Stream, zero: bool
    ) -> int:
        """Return the address of `size` bytes, which their pool's `free` takes back."""
        bytes_ = checked_size(size)
        return self._serve(
            bytes_, lambda pool: pool.malloc(bytes_, alignment, stream, zero), _free_address
        )[0]

    def _serve(
        self,
        size: int,
        ask: Callable[[PagedPool], T],
        give_back: Callable[[PagedPool, T], object],
    ) -> tuple[T, PagedPool]:
        """Return what the right pool says to `ask`, and the pool."""
        while True:
            layout = self._layout or self.layout
            pool = self._choose(layout, size)
            try:
                try:
                    got = ask(pool)
                except PoolCapacityExceeded:
                    got, pool = self._spill_over(layout, pool, size, ask)
            except InvalidArgument:
                if self._layout is layout:
                    raise
                continue  # the pool was closed meanwhile
            if self._layout is layout or pool is self._persistent:
                self._holdings.totals.note()
                return got, pool
            give_back(pool, got)

    def _choose(self, layout: Layout, size: int) -> PagedPool:
        """Return the pool that is to serve a request, and count it."""
        self._requests += 1
        if self._requests >= self._next_look:
            self.look()
        if self.mode is Mode.PERSISTENT or (self._match_sizes and self._persistent.knows(size)):
            return self._persistent
        return layout.pool_for(size)

    def _spill_over(
        self, layout: Layout, pool: PagedPool, size: int, ask: Callable[[PagedPool], T]
    ) -> tuple[T, PagedPool]:
        """Ask the pools after the one whose error is being handled; raise it if none has room.

        The error is bound to no name: that would be a cycle, which keeps the callers' handles.
        """
        later = layout.next_pool(pool, size) if self._spill else None
        while later is not None:
            if not self._spilled:
                self._spilled = True
                LOG.warning("%s is at its cap; requests go to later pools from now on", pool.name)
            try:
                return ask(later), later
            except PoolCapacityExceeded:
                later = layout.next_pool(later, size)
        raise


def _free_allocation(_: PagedPool, allocation: Allocation) -> None:
    allocation.free()


def _free_address(pool: PagedPool, ptr: int) -> None:
    pool.free(ptr)


def checked_size(size: SupportsIndex) -> int:
    """Return a size as a number; InvalidArgument if it is none."""
    if type(size) is int and size >= 0:
        return size
    try:
        number = as_index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidArgument(f"size must be an integer from 0 on, not {size!r}")
    return number
