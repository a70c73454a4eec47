"""Pools whose pages hold one slice each."""

from __future__ import annotations

from functools import partial
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.core.pages import grant, page_padding, start_of, stream_number, take_page
from umfpy.core.pool import Allocation
from umfpy.manager.paged import PagedPool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class WholePagePool(PagedPool):
    """A slice is a whole page; a subclass says which pages do for a request.

    Freeing is the compiled way of every pool.
    """

    whole = True

    def _page_range(self, size: int) -> tuple[int, int]:
        """Return the least and the most bytes of a page for `size` bytes."""
        raise NotImplementedError

    def _page_size(self, size: int) -> int:
        """Return the bytes of a new page for `size` bytes."""
        raise NotImplementedError

    def padding_bytes(self) -> int:
        return page_padding(self.map, self.unit)

    def allocate(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> Allocation:
        """Return `size` bytes; as `Pool.allocate`."""
        if zero:
            self._refuse_zero()
        handle = 0 if stream is None else stream_number(stream)
        bytes_ = as_index(size)
        allocation = grant(self, self._block(bytes_, alignment, handle, False), bytes_, handle)
        if zero:
            self._clear(allocation.ptr, bytes_, handle)
        return allocation

    def malloc(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> int:
        """Return the address of `size` bytes; as `Pool.malloc`."""
        if zero:
            self._refuse_zero()
        handle = 0 if stream is None else stream_number(stream)
        ptr = start_of(self, self._block(as_index(size), alignment, handle, True))
        if zero:
            try:
                self._clear(ptr, as_index(size), handle)
            except BaseException:
                self.free(ptr)
                raise
        return ptr

    def _block(self, size: int, alignment: SupportsIndex, stream: int, index: bool) -> int:
        block = self._reuse(size, alignment, stream, index)
        if block is None:
            block = self._reuse_or_fetch(size, alignment, stream, index)
        if block is not None:
            return block
        holdings = self.holdings()
        if holdings is None:
            raise self._gone()
        if holdings.reclaim(size):
            block = self._reuse_or_fetch(size, alignment, stream, index)
        if block is None:
            raise holdings.out_of_memory(size, self)
        return block

    def _reuse(self, size: int, alignment: SupportsIndex, stream: int, index: bool) -> int | None:
        least, most = self._page_range(size)
        return take_page(self, size, least, most, as_index(alignment), stream, index, self._ages)

    def _reuse_or_fetch(
        self, size: int, alignment: SupportsIndex, stream: int, index: bool
    ) -> int | None:
        with self._growing:
            block = self._reuse(size, alignment, stream, index)
            if block is None and self.map.streams > 1 and not self.frozen:
                self.synchronize()
                block = self._reuse(size, alignment, stream, index)
            if block is not None:
                return block
            page = self._page_size(size)
            return self._fetch(
                page, as_index(alignment), partial(self._enter_used, page, size, stream, index)
            )
