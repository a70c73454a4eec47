"""The layout that a manager serves from, and changes of it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from umfpy.errors import InvalidArgument
from umfpy.manager.holdings import Holdings
from umfpy.manager.layout import Layout
from umfpy.manager.log import LOG
from umfpy.manager.persistent import PersistentPool

_NEVER = 1 << 62  # requests


class InstalledLayout:
    """The layout in use, and when its idle pages are looked at.

    Attributes
    ----------
    current
        The layout; None while it is being changed, and once the manager is closed.
    changing
        Held by whoever changes layout, mode or capture.
    requests
        How many the manager has had: the clock of idle pages.
    next_look
        The request at which they are looked at next.
    """

    def __init__(self, holdings: Holdings, persistent: PersistentPool, layout: Layout) -> None:
        self.changing = threading.RLock()
        self.requests = 0
        self.next_look = 0
        self.current: Layout | None = None
        self._holdings = holdings
        self._persistent = persistent
        self._install(layout)

    def get(self) -> Layout:
        """Return the layout, once it is not being changed; InvalidArgument if there is none."""
        layout = self.current
        if layout is None:
            with self.changing:
                layout = self.current
        if layout is None:
            raise InvalidArgument(
                f"{self._holdings.name!r} is closed; make a new manager, or keep this one open"
            )
        return layout

    def replace(self, build: Callable[[], Layout]) -> bool:
        """Serve from another layout; False, with nothing changed, if slices or a capture live.

        Idle pages go back.  Requests wait meanwhile, and those under way try again.
        """
        with self.changing:
            layout = self.get()
            if self._holdings.frozen:
                LOG.info("%s: layout kept: a capture is open", self._holdings.name)
                return False
            self.current = None
            try:
                self._holdings.release_idle()
                live = sum(pool.stats().live_allocations for pool in layout.pools)
                if live:
                    LOG.info("%s: layout kept: %d slices live", self._holdings.name, live)
                    return False
                before, layout = layout, build()
                for pool in before.pools:
                    pool.retire()
                return True
            finally:
                self._install(layout)

    def retire(self) -> None:
        """Serve no more: idle pages go back now, and each other page with its last slice."""
        self.current = None
        for pool in self._holdings.pools:
            pool.retire()

    def look(self) -> int:
        """Give back what has been idle for its pool's period, and return the bytes.

        O(pools + idle pages), every so many requests.
        """
        layout = self.get()
        released = sum(pool.look(self.requests) for pool in layout.pools)
        self._plan(layout)
        return released

    def _install(self, layout: Layout) -> None:
        self._holdings.follow((self._persistent, *layout.pools))
        names = ", ".join(pool.name for pool in layout.pools)
        LOG.info("%s: layout of %d pools: %s", self._holdings.name, len(layout.pools), names)
        for pool in layout.pools:
            pool.start_looking(self.requests)
        self._plan(layout)
        self.current = layout

    def _plan(self, layout: Layout) -> None:
        times = [pool.next_look() for pool in layout.pools]
        self.next_look = min((time for time in times if time is not None), default=_NEVER)
