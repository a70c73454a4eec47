"""Making free memory usable that went down a rung, or never had anything behind its addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.errors import OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.backing import Backing
from umfpy.pools.departure import bounds
from umfpy.pools.growth import round_up
from umfpy.pools.window import Free, Window, behind, choose
from umfpy.provider import Capability

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap
    from umfpy.pools.cuts import CutExtents
    from umfpy.provider import Provider

#: Free ranges below this part of a unit are not looked at: to make use of them saves little.
_LEAST_PART = 8

#: The unit of a provider that cannot split: memory comes back as a whole, as it went.
WHOLE = 1 << 62


class Supply:
    """Finds where a request could go if memory were there, and puts it there.

    Callers hold the pool's growth lock; other threads may take and free blocks meanwhile.
    CaptureWouldBreak is raised where a capture forbids to ask the driver.

    Parameters
    ----------
    name, space, provider, cuts
        Of the pool.

    Attributes
    ----------
    entered
        How many extents were entered for addresses.
    """

    def __init__(self, name: str, space: ExtentMap, provider: Provider, cuts: CutExtents) -> None:
        self._name = name
        self._map = space
        self._provider = provider
        unit = provider.granularity()
        self._unit = unit if Capability.SPLIT in provider.capabilities else WHOLE
        self._least = unit // _LEAST_PART
        self._backing = Backing(space, provider, cuts)
        self._cuts = cuts
        self.entered = 0

    def supply(self, size: int, alignment: int, limit: int | None) -> bool:
        """Bring free memory together for a request; False if there is none within `limit`.

        True says that it is there, or that another thread was faster: the caller looks again.
        Raises what the provider does, but for lack of memory.
        """
        size = round_up(size, self._map.granule)
        window = self._window(size, alignment)
        with captures.growing(self._name, self._provider, size):
            if window is None:
                return self._without_window(size, alignment)
            return self._wake(window, limit) or self._scrape(size, alignment, window, limit)

    def extend(self, end: int, size: int, limit: int | None) -> bool:
        """Make the `size` bytes behind a used block usable; False if they are used, or none left.

        True as for `supply`.
        """
        window = behind(self._free(1), end, size, self._unit, self._edges())
        if window is None:
            return False
        with captures.growing(self._name, self._provider, size):
            return self._wake(window, limit)

    def _window(self, size: int, alignment: int, *, scarce: bool = False) -> Window | None:
        free = self._free(1 if scarce else self._least)
        return choose(free, size, alignment, self._unit, self._edges(), scarce=scarce)

    def _scrape(self, size: int, alignment: int, tried: Window, limit: int | None) -> bool:
        """There was no memory for a window: try the one that takes the least, if it is another."""
        window = self._window(size, alignment, scarce=True)
        return window is not None and window != tried and self._wake(window, limit)

    def _free(self, least: int) -> list[Free]:
        """Return what is free in ranges of at least so many bytes, in no order."""
        return [
            Free(start, size, state)
            for state in (SAFE, HIDDEN, UNBACKED)
            for start, size in self._map.free_ranges(state, max(least, 1))
        ]

    def _edges(self) -> set[int]:
        """Return where the blocks of each extent begin: no block reaches across."""
        return {bounds(extent)[0] for extent in list(self._map.extents.values())}

    def _wake(self, window: Window, limit: int | None) -> bool:
        """Make all of a window usable; False if the provider says that it has no memory for it."""
        try:
            # Lost to another thread or not: the caller looks again.
            return not all(map(self._show, window.hidden)) or self._fill(window, limit)
        except OutOfMemoryError:
            return False

    def _show(self, hidden: Free) -> bool:
        return self._backing.show(hidden.start, hidden.size)

    def _fill(self, window: Window, limit: int | None) -> bool:
        """Put memory behind what has none in a window; False if there is none."""
        if not self._admits(window.new_bytes, limit):
            return False
        for part in window.without_memory:
            if not self._backing.back(part.start, part.size):
                break
        return True

    def _admits(self, new: int, limit: int | None) -> bool:
        return not new or limit is None or self._map.counters()["reserved"] + new <= limit

    def _without_window(self, size: int, alignment: int) -> bool:
        """No window holds the request; return whether there may be one now."""
        return False
