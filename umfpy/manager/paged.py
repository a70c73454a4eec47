"""What the pools of a manager share: pages that age, and go back."""

from __future__ import annotations

import weakref
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TypeVar

from umfpy.core.cinterface import CInterface
from umfpy.core.extents import Extent
from umfpy.core.pages import idle_page, set_unit
from umfpy.errors import InvalidArgument, NotSupported
from umfpy.manager import captures
from umfpy.manager.holdings import Holdings
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.pools.base import ProviderPool
from umfpy.pools.release import free_removed, put_back

#: How often a page is found idle before it goes, and the age of a new one.
_OLD = 5
NEW_AGE = 4

T = TypeVar("T")


class PagedPool(ProviderPool):
    """A policy over an extent map whose extents are pages, and whose blocks are slices.

    Attributes
    ----------
    kind
        What reports call it.
    whole
        Whether a page holds one slice.
    keeps_idle
        Whether idle pages stay until memory is short, or somebody asks for them.
    period
        After how many requests of the manager idle pages go; None: never by themselves.
    """

    kind = ""
    whole = False
    keeps_idle = False

    def __init__(
        self,
        holdings: Holdings,
        properties: MemoryProperties,
        name: str,
        period: int | None = None,
    ) -> None:
        super().__init__(holdings.provider, name=name)
        set_unit(self, properties.granule)
        self.unit = properties.alignment
        self.period = period
        self._properties = properties
        # The other way round is a strong reference: slices keep pools, and no cycle a manager.
        self._holdings = weakref.ref(holdings)
        self._ages = bytearray(1)  # [extent] how often it was found idle
        self._looked_at = 0

    @abstractmethod
    def intervals(self) -> Sequence[tuple[int, int]]:
        """Return the sizes that the pool takes, as ranges that include both ends."""

    @abstractmethod
    def padding_bytes(self) -> int:
        """Return by how many bytes live slices were rounded up to the alignment."""

    # Pages.

    def holdings(self) -> Holdings | None:
        """Return the manager's holdings; None once it is gone."""
        return self._holdings()

    @property
    def manager(self) -> ProviderPool | None:
        """The `MemoryManager` that the pool belongs to; None once it is gone."""
        holdings = self._holdings()
        return None if holdings is None else holdings.manager()

    @property
    def frozen(self) -> bool:
        """Whether pages have to stay, and nobody may wait: a capture is open, here or beside."""
        holdings = self._holdings()
        if holdings is None:
            return captures.is_frozen(self.provider)
        return holdings.frozen

    def _enter_free(self, size: int, base: int) -> Extent:
        """Take a new page over as free memory."""
        extent = self.map.add(base, size, self.provider)
        self._note_page(extent)
        return extent

    def _enter_used(self, size: int, requested: int, stream: int, index: bool, base: int) -> int:
        """Take a new page over as one slice, and return its block."""
        block = self.map.add_used(base, size, requested, self.provider, stream, index=index)
        self._note_page(self.map.extent_of(block))
        return block

    def _note_page(self, extent: Extent) -> None:
        missing = extent.index + 1 - len(self._ages)
        if missing > 0:
            self._ages.extend(bytes(missing))
        self._ages[extent.index] = NEW_AGE
        self._provider_allocs += 1

    def _fetch(self, size: int, alignment: int, enter: partial[T]) -> T | None:
        holdings = self._holdings()
        if holdings is None or size >= 1 << 62:
            return None
        # A page begins with a granule of the map, which may be larger than the provider's.
        boundary = max(alignment, self.map.granule)
        return holdings.fetch(size, boundary if boundary > self.provider.granule else 0, enter)

    # Going back.

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

        O(idle pages).  Does nothing during a capture, or while another thread is at it.
        """
        if self.frozen or not self._growing.enter(wait=False):
            return 0
        try:
            return self._give_back(extent for extent in self._idle() if self._grows_old(extent))
        finally:
            self._growing.leave()

    def _idle(self) -> list[Extent]:
        """Return the idle pages; those in use are young again unless reuse decides their age."""
        idle = self.map.free_extents()
        if not self.whole:
            kept = {extent.index: self._ages[extent.index] for extent in idle}
            self._ages[:] = bytes(len(self._ages))
            for index, age in kept.items():
                self._ages[index] = age
        return idle

    def _grows_old(self, extent: Extent) -> bool:
        self._ages[extent.index] = min(self._ages[extent.index] + 1, _OLD)
        return self._ages[extent.index] == _OLD

    def evict(self, missing: int) -> int:
        """Give idle pages back until `missing` bytes went; return the bytes.

        Large pages first.  Nothing if another thread grows this pool just now.
        """
        if missing <= 0 or self.frozen or not self._growing.enter(wait=False):
            return 0
        try:
            return self._give_back(self._remove_until(missing), removed=True)
        finally:
            self._growing.leave()

    def _remove_until(self, missing: int) -> Iterable[Extent]:
        while missing > 0:
            extent = idle_page(self.map, self.whole)
            if extent is None:
                return
            if self.map.remove(extent):
                missing -= extent.size
                yield extent

    def _give_back(self, extents: Iterable[Extent], *, removed: bool = False) -> int:
        """Take extents out of the map if they are still idle, wait for the device, free them."""
        gone = [extent for extent in extents if removed or self.map.remove(extent)]
        if not gone:
            return 0
        self._wait_for_removed(gone)
        released = 0
        while gone:
            extent = gone.pop()
            try:
                free_removed(extent)
            except BaseException:
                for other in gone:
                    put_back(other)
                raise
            released += extent.size
            self._provider_frees += 1
        return released

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give idle pages back as `Pool.trim` does; nothing during a capture."""
        return 0 if self.frozen else super().trim(keep_bytes)

    def synchronize(self) -> None:
        """Wait for the device as `Pool.synchronize` does; CaptureWouldBreak during a capture."""
        captures.refuse_waiting(self.name, self.provider)
        super().synchronize()

    def retire(self) -> None:
        """Give nothing more out; what is idle goes back now, and each page with its last slice.

        During a capture all that goes back once it is over.
        """
        if self.map.foreign:
            return
        if self.frozen:
            self.map.shut()
            captures.after(self, self._drain)
            return
        with self._growing:
            self._join_streams()
            self._release_free(0)
            self.map.shut()

    def close(self) -> None:
        """Give everything back; a pool that was retired and holds nothing has nothing to do."""
        if self.frozen:
            self.retire()
        elif not self.closed or self.map.extents:
            super().close()

    def _drain(self) -> None:
        if self.frozen:
            captures.after(self, self._drain)
        else:
            super()._drain()

    def _gone(self) -> InvalidArgument:
        return InvalidArgument(f"the manager of pool {self.name!r} is gone; make a new one")

    def c_interface(self) -> CInterface:
        """Refused: callers in C would cut pages that belong to one slice, or pass captures by."""
        raise NotSupported(
            f"pool {self.name!r} serves its manager alone; give a umfpy.Pool to callers in C"
        )

    # Questions.

    def usage(self) -> PoolUsage:
        """Return what the pool has; O(pages)."""
        now = self.map.counters()
        return PoolUsage(
            name=self.name,
            kind=self.kind,
            pages=now["extents"],
            idle_pages=len(self.map.free_extents()),
            usage=MemoryUsage(
                number_allocs=now["allocations"] - now["frees"],
                bytes_in_use=now["requested"],
                bytes_padding=self.padding_bytes(),
                bytes_reserved=now["reserved"],
                peak_number_allocs=0,
                peak_bytes_in_use=now["peak_requested"],
                peak_bytes_reserved=now["peak_reserved"],
            ),
        )
