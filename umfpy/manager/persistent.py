"""Memory that outlives steps: weights, and whatever a captured graph works on."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from umfpy.core.extents import Extent
from umfpy.core.handle import Handle, Slice, allocation_of, revive, wrap
from umfpy.core.pages import grant, page_of, take_extent
from umfpy.core.pool import Allocation
from umfpy.manager.holdings import Holdings
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.whole import WholePagePool

LOG = logging.getLogger("umfpy.manager")

_LARGEST = (1 << 62) - 1


@dataclass(frozen=True)
class _Touched:
    """The last slice of a page that a capture saw."""

    holder: weakref.ref[Any]  #: the `Slice`, or the `Allocation` below one without a handle
    page: Extent
    size: int
    stream: int


class PersistentPool(WholePagePool):
    """A page of its exact padded size for each slice, reused for that size alone.

    While a capture is open it notes which pages are used, so that they can be kept for the
    captured graph.
    """

    kind = "persistent"
    keeps_idle = True

    def __init__(self, holdings: Holdings, properties: MemoryProperties, name: str) -> None:
        super().__init__(holdings, properties, name)
        self._touched: dict[int, _Touched] | None = None  # [page], during a capture
        self._pins: weakref.WeakKeyDictionary[Allocation, weakref.WeakSet[Handle]]
        self._pins = weakref.WeakKeyDictionary()
        self._moved: weakref.WeakKeyDictionary[Handle, Handle] = weakref.WeakKeyDictionary()
        self._sizes: set[int] = set()
        self._sizes_at = 0  # releases, when `_sizes` was made

    def intervals(self) -> Sequence[tuple[int, int]]:
        return ((0, _LARGEST),)

    def knows(self, size: int) -> bool:
        """Return whether there is a page for requests of this size, in use or idle."""
        if self._sizes_at != self._provider_frees:
            self._sizes_at = self._provider_frees
            self._sizes = {extent.size for extent in list(self.map.extents.values())}
        return self._page_size(size) in self._sizes

    def pages_by_size(self) -> dict[int, tuple[int, int]]:
        """Return {page size in bytes: (idle pages, all pages)}, ascending; O(pages)."""
        idle = {extent.index for extent in self.map.free_extents()}
        sizes: dict[int, tuple[int, int]] = {}
        for extent in list(self.map.extents.values()):
            free, total = sizes.get(extent.size, (0, 0))
            sizes[extent.size] = free + (extent.index in idle), total + 1
        return dict(sorted(sizes.items()))

    def _page_range(self, size: int) -> tuple[int, int]:
        return (self._page_size(size),) * 2

    def _page_size(self, size: int) -> int:
        return self._properties.align_up(size) or self.unit

    def _note_page(self, extent: Extent) -> None:
        super()._note_page(extent)
        self._sizes.add(extent.size)
        LOG.info("%s: a new page of %d bytes", self.name, extent.size)

    # Captures.

    def start_touching(self) -> None:
        """Note every page that is used from now on."""
        self._touched = {}

    def touch(self, allocation: Allocation, holder: weakref.ref[Any]) -> None:
        """Note the page of an allocation, if a capture is open."""
        touched = self._touched
        if touched is not None:
            page = page_of(allocation)
            touched[page.index] = _Touched(holder, page, allocation.size, allocation.stream)

    def end_touching(self, manager: object) -> list[Handle]:
        """Return a handle for each page that was noted, which keeps it for as long as it lives."""
        touched, self._touched = self._touched or {}, None
        # A copy: a thread that is late may still be noting its page.
        pins = [self._pin(one, manager) for one in list(touched.values())]
        made = [pin for pin in pins if pin is not None]
        for pin in made:
            self._pins.setdefault(allocation_of(pin, manager), weakref.WeakSet()).add(pin)
        return made

    def is_pinned(self, allocation: Allocation) -> bool:
        """Return whether a pin holds this allocation."""
        return any(not pin.released for pin in self._pins.get(allocation, ()))

    def move_pins(self, allocation: Allocation, assigned: Handle) -> None:
        """Have the pins of an allocation keep it, although it was bound to another handle."""
        for pin in self._pins.get(allocation, ()):
            if not pin.released:
                self._moved[pin] = assigned.clone()

    def _pin(self, touched: _Touched, manager: object) -> Handle | None:
        holder = touched.holder()
        if isinstance(holder, Slice):
            return revive(holder)
        if isinstance(holder, Allocation) and not holder.freed:
            return wrap(holder, manager)
        block = take_extent(self, touched.page, touched.size, touched.stream)
        if block is None:
            return None
        return wrap(grant(self, block, touched.size, touched.stream), manager)
