"""Memory that outlives steps: weights, and whatever a captured graph works on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from umfpy.core.extents import Extent
from umfpy.manager.asleep import idle_pages
from umfpy.manager.holdings import Holdings
from umfpy.manager.log import LOG
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.whole import WholePagePool

_LARGEST = (1 << 62) - 1


class PageCounts(NamedTuple):
    """Pages of one size: those that wait for a request, those that sleep, and all."""

    ready: int
    asleep: int
    total: int

    @property
    def used(self) -> int:
        """Those that have a slice."""
        return self.total - self.ready - self.asleep


class PersistentPool(WholePagePool):
    """A page of its exact padded size for each slice, reused for that size alone."""

    kind = "persistent"
    keeps_idle = True

    def __init__(self, holdings: Holdings, properties: MemoryProperties, name: str) -> None:
        super().__init__(holdings, properties, name)
        self._sizes: set[int] = set()
        self._sizes_at = 0  # releases, when `_sizes` was made

    def intervals(self) -> Sequence[tuple[int, int]]:
        return ((0, _LARGEST),)

    def knows(self, size: int) -> bool:
        """Return whether there is a page for requests of this size: in use, idle, or asleep."""
        if self._sizes_at != self._provider_frees:
            self._sizes_at = self._provider_frees
            self._sizes = {extent.size for extent in list(self.map.extents.values())}
        return self.page_bytes(size) in self._sizes

    def pages_by_size(self) -> dict[int, PageCounts]:
        """Return {page size in bytes: counts}, ascending; O(pages)."""
        ready, asleep = (Counter(page.size for page in pages) for pages in idle_pages(self.map))
        total = Counter(page.size for page in list(self.map.extents.values()))
        return {size: PageCounts(ready[size], asleep[size], total[size]) for size in sorted(total)}

    def _page_range(self, size: int) -> tuple[int, int]:
        return (self.page_bytes(size),) * 2

    def page_bytes(self, size: int) -> int:
        return self._properties.align_up(size) or self.unit

    def _note_page(self, extent: Extent) -> None:
        super()._note_page(extent)
        self._sizes.add(extent.size)
        LOG.info("%s: a new page of %d bytes", self.name, extent.size)
