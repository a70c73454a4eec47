"""Pools whose pages hold one slice each."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from umfpy.core.extents import HIDDEN, UNBACKED
from umfpy.core.pages import LARGEST_SLACK, page_padding, take_page
from umfpy.manager.granting import GrantingPool
from umfpy.manager.sleepers import Choice


class WholePagePool(GrantingPool):
    """A slice is a whole page; a subclass says which pages do for a request."""

    whole = True
    _lowers_whole = True

    @abstractmethod
    def _page_range(self, size: int) -> tuple[int, int]:
        """Return the least and the most bytes of a page for `size` bytes."""

    def padding_bytes(self) -> int:
        return page_padding(self.map, self.unit)

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        least, most = self._page_range(size)
        return take_page(self, size, least, most, alignment, stream, index, self._ages)

    def _choose_asleep(self, size: int, alignment: int) -> Choice | None:
        least, most = self._page_range(size)
        most = min(most, size + LARGEST_SLACK)
        new = self.page_bytes(size)
        # What takes much more memory than a new page would stays asleep.
        for state, largest in ((HIDDEN, most), (UNBACKED, min(most, new + (new - 1) // 4))):
            for page in self._sleepers.ranges(state, least, largest):
                if page.start % max(alignment, 1) == 0:
                    return Choice((page,), page)
        return None

    def _grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        page = self.page_bytes(size)
        return self._fetch(page, alignment, partial(self._enter_used, page, size, stream, index))
