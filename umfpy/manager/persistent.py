"""Memory that outlives steps: weights, and whatever a captured graph works on."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.core.extents import Extent
from umfpy.manager.holdings import Holdings
from umfpy.manager.log import LOG
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.whole import WholePagePool

_LARGEST = (1 << 62) - 1


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
