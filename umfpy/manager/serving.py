"""From a request to the pool that serves it, while the layout may change under it."""

from __future__ import annotations

from collections.abc import Callable
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex, TypeVar

from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument
from umfpy.manager.errors import PoolCapacityExceeded
from umfpy.manager.holdings import Holdings
from umfpy.manager.installed import InstalledLayout
from umfpy.manager.layout import Layout
from umfpy.manager.log import LOG
from umfpy.manager.modes import Mode, Persistence
from umfpy.manager.paged import PagedPool
from umfpy.manager.persistent import PersistentPool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream

T = TypeVar("T")


class Server:
    """Serves requests from persistent memory or from the layout, as mode and size want it.

    No lock is held meanwhile: a request that finds afterwards that the layout was changed gives
    back what it got, and tries again.

    Attributes
    ----------
    mode
        What requests are for now.
    """

    def __init__(
        self,
        holdings: Holdings,
        persistent: PersistentPool,
        persistence: Persistence,
        installed: InstalledLayout,
        *,
        spill: bool,
    ) -> None:
        self.mode = persistence.first_mode
        self._totals = holdings.totals
        self._persistent = persistent
        self._installed = installed
        self._match_sizes = persistence is Persistence.SIZE_MATCH
        self._spill = spill
        self._spilled = False

    def allocate(
        self, size: SupportsIndex, alignment: SupportsIndex, stream: Stream, zero: bool
    ) -> Allocation:
        """Return `size` bytes as an allocation."""
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
        )

    def _serve(
        self,
        size: int,
        ask: Callable[[PagedPool], T],
        give_back: Callable[[PagedPool, T], object],
    ) -> T:
        """Return what the right pool says to `ask`."""
        installed = self._installed
        while True:
            layout = installed.current or installed.get()
            pool = self._choose(layout, size)
            try:
                try:
                    got = ask(pool)
                except PoolCapacityExceeded:
                    got, pool = self._spill_over(layout, pool, size, ask)
            except InvalidArgument:
                if installed.current is layout:
                    raise
                continue  # the pool was closed meanwhile
            if installed.current is layout or pool is self._persistent:
                self._totals.note()
                return got
            give_back(pool, got)

    def _choose(self, layout: Layout, size: int) -> PagedPool:
        """Return the pool that is to serve a request, and count it."""
        installed = self._installed
        installed.requests += 1
        if installed.requests >= installed.next_look:
            installed.look()
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
