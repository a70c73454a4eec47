"""Idle pages: how they age, and go back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from umfpy.core.extents import Extent
from umfpy.core.pages import idle_page
from umfpy.manager.asleep import any_asleep, idle_pages
from umfpy.manager.held import HeldPool
from umfpy.manager.holdings import Holdings
from umfpy.pools import captures
from umfpy.pools.departure import Departure, departures, departures_of

#: How often a page is found idle before it goes, and the age of a new one.
_OLD = 5
_NEW = 4


class AgingPool(HeldPool):
    """A pool whose idle pages go back: by themselves as they age, or when memory is short.

    Attributes
    ----------
    whole
        Whether a page holds one slice.
    keeps_idle
        Whether idle pages stay until memory is short, or somebody asks for them.
    period
        After how many requests of the manager idle pages go; None: never by themselves.
    """

    whole = False
    keeps_idle = False

    def __init__(self, holdings: Holdings, name: str, period: int | None) -> None:
        super().__init__(holdings, holdings.provider, name=name)
        self.period = period
        self._ages = bytearray(1)  # [extent] how often it was found idle
        self._looked_at = 0

    @property
    def frozen(self) -> bool:
        """Whether pages have to stay, and nobody may wait: a capture is open, here or beside."""
        holdings = self.holdings()
        if holdings is None:
            return captures.is_frozen(self.provider)
        return holdings.frozen

    def _note_page(self, extent: Extent) -> None:
        """Count a page that has just come."""
        self._have_ages(extent)
        self._ages[extent.index] = _NEW
        self._provider_allocs += 1

    def _have_ages(self, *extents: Extent) -> None:
        """Have an age for each of these, 0 if it is new."""
        missing = max((extent.index for extent in extents), default=0) + 1 - len(self._ages)
        if missing > 0:
            self._ages.extend(bytes(missing))

    # Memory goes under the growth lock, and never during a capture.

    def still(self) -> AbstractContextManager[None]:
        """Return what keeps memory from going, and new pages from coming, for a ``with`` block."""
        return self._growing

    def release_idle(self) -> int:
        """Give all idle pages back, those that sleep as well; return the bytes of memory."""
        with self._shrinking() as may:
            if not may:
                return 0
            self._join_streams()
            return self._release_free(0)

    # By themselves.

    def next_look(self) -> int | None:
        """Return at which request of the manager idle pages are looked at next; None: never."""
        return None if self.period is None else self._looked_at - -self.period // _OLD

    def start_looking(self, requests: int) -> None:
        """Count the period from this request of the manager on."""
        self._looked_at = requests

    def look(self, requests: int) -> int:
        """Let idle pages age if it is time to, and return the bytes that went.

        `requests` counts those of the whole manager: a pool that nobody asks has idle pages, too.
        """
        due = self.next_look()
        if due is None or requests < due:
            return 0
        self._looked_at = requests
        return self.age()

    def age(self) -> int:
        """Let idle pages grow older, and give back the old ones; return the bytes.

        O(idle pages), and what `idle_pages` says.  Does nothing during a capture, or while another
        thread is at it.
        """
        with self._shrinking(wait=False) as may:
            if not may:
                return 0
            old = [extent for extent in self._idle() if self._grows_old(extent)]
            return self._give_up([going for going in self._departures(old) if going.leave()])

    def _idle(self) -> list[Extent]:
        """Return the idle pages; those in use are young again unless reuse decides their age.

        Also such as sleep: what nobody has needed is to go, addresses and all.
        """
        ready, asleep = idle_pages(self.map)
        idle = [*ready, *asleep]
        self._have_ages(*idle)
        if not self.whole:
            kept = {extent.index: self._ages[extent.index] for extent in idle}
            self._ages[:] = bytes(len(self._ages))
            for index, age in kept.items():
                self._ages[index] = age
        return idle

    def _grows_old(self, extent: Extent) -> bool:
        self._ages[extent.index] = min(self._ages[extent.index] + 1, _OLD)
        return self._ages[extent.index] == _OLD

    # When somebody needs the memory.

    def evict(self, missing: int) -> int:
        """Give idle pages back until `missing` bytes went; return the bytes.

        Large pages first.  Nothing if another thread grows this pool just now.
        """
        if missing <= 0:
            return 0
        with self._shrinking(wait=False) as may:
            return self._give_up(list(self._leave_until(missing))) if may else 0

    def _leave_until(self, missing: int) -> Iterator[Departure]:
        """Have idle pages leave the map until `missing` bytes of memory have."""
        for going in self._evictable():
            if going.leave():
                missing -= going.backed
                yield going
            if missing <= 0:
                return

    def _evictable(self) -> Iterator[Departure]:
        """Tell what may be idle and has memory, large pages first; those before must have left."""
        if any_asleep(self.map):
            found = [going for going in departures(self.map, self._cuts) if going.backed]
            yield from sorted(found, key=lambda going: going.backed, reverse=True)
            return
        while (extent := idle_page(self.map, self.whole)) is not None:
            yield from self._departures([extent])

    def _departures(self, extents: Sequence[Extent]) -> list[Departure]:
        return departures_of(extents, self.map, self._cuts)
