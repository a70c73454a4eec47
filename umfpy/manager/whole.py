"""Pools whose pages hold one slice each."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial

from umfpy.core.pages import page_padding, take_page
from umfpy.manager.granting import GrantingPool


class WholePagePool(GrantingPool):
    """A slice is a whole page; a subclass says which pages do for a request."""

    whole = True

    @abstractmethod
    def _page_range(self, size: int) -> tuple[int, int]:
        """Return the least and the most bytes of a page for `size` bytes."""

    @abstractmethod
    def _page_size(self, size: int) -> int:
        """Return the bytes of a new page for `size` bytes."""

    def padding_bytes(self) -> int:
        return page_padding(self.map, self.unit)

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        least, most = self._page_range(size)
        return take_page(self, size, least, most, alignment, stream, index, self._ages)

    def _grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        page = self._page_size(size)
        return self._fetch(page, alignment, partial(self._enter_used, page, size, stream, index))
