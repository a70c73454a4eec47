"""Pages of which each belongs to one slice at a time."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.core.pages import LARGEST_SLACK
from umfpy.manager.holdings import Holdings
from umfpy.manager.options import ExclusiveOptions
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.whole import WholePagePool

_KEPT = 0.99  # of the average, at each request


class ExclusivePool(WholePagePool):
    """A request takes the idle page used most lately and most often; else a new one.

    A new page is as large as the average request, if that is more than the request at hand.  The
    average starts with the first request.
    """

    kind = "exclusive"

    def __init__(
        self,
        holdings: Holdings,
        properties: MemoryProperties,
        name: str,
        options: ExclusiveOptions,
    ) -> None:
        super().__init__(holdings, properties, name, options.dealloc_period)
        self.max_alloc_size = options.max_alloc_size
        self._most = self._padded(self.max_alloc_size)
        self._average: float | None = None

    def intervals(self) -> Sequence[tuple[int, int]]:
        return ((0, self.max_alloc_size),)

    def _block(self, size: int, alignment: int, stream: int, index: bool) -> int:
        average = self._average
        self._average = size if average is None else average * _KEPT + size * (1 - _KEPT)
        return super()._block(size, alignment, stream, index)

    def _page_range(self, size: int) -> tuple[int, int]:
        least = self._padded(size)
        return least, max(self._most, least)

    def page_bytes(self, size: int) -> int:
        average = self._padded(int(self._average or 0))
        # A page may not be too large for the slice by more than the map can note.
        bound = self._properties.align_down(size + LARGEST_SLACK)
        return max(min(average, bound), self._padded(size))

    def _padded(self, size: int) -> int:
        """A page of an empty slice has a unit all the same: it needs an address of its own."""
        return -(-size // self.unit) * self.unit or self.unit
