"""Pages of their own for what is larger than any page of a preset."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.manager.holdings import Holdings
from umfpy.manager.options import DirectOptions
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.whole import WholePagePool


class DirectPool(WholePagePool):
    """A page of its exact padded size for each slice.

    An idle page serves a later request that leaves less than a fifth of it unused, as in sliced
    pools.
    """

    kind = "direct"

    def __init__(
        self,
        holdings: Holdings,
        properties: MemoryProperties,
        name: str,
        options: DirectOptions,
    ) -> None:
        super().__init__(holdings, properties, name, options.dealloc_period)
        self.max_alloc_size = options.max_alloc_size

    def intervals(self) -> Sequence[tuple[int, int]]:
        return ((0, self.max_alloc_size),)

    def _page_range(self, size: int) -> tuple[int, int]:
        least = self.page_bytes(size)
        return least, least + (least - 1) // 4

    def page_bytes(self, size: int) -> int:
        return self._properties.align_up(size) or self.unit
