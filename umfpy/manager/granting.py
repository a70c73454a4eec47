"""Requests to pools that choose a block in another way than every pool does."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.core.pages import grant, start_of, stream_number
from umfpy.core.pool import Allocation
from umfpy.manager.paged import PagedPool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class GrantingPool(PagedPool):
    """A pool that grants the blocks which its `_take` returns; freeing is the compiled way."""

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
        bytes_, handle = as_index(size), 0 if stream is None else stream_number(stream)
        block = self._block(bytes_, as_index(alignment), handle, False)
        allocation = grant(self, block, bytes_, handle)
        if zero:
            self._clear_or(allocation.free, block, bytes_, handle)
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
        bytes_, handle = as_index(size), 0 if stream is None else stream_number(stream)
        block = self._block(bytes_, as_index(alignment), handle, True)
        ptr = start_of(self, block)
        if zero:
            self._clear_or(partial(self.free, ptr), block, bytes_, handle)
        return ptr

    def _block(self, size: int, alignment: int, stream: int, index: bool) -> int:
        block = self._take(size, alignment, stream, index)
        return self._obtain(size, alignment, stream, index) if block is None else block

    def _clear_or(self, undo: Callable[[], object], block: int, size: int, stream: int) -> None:
        """Have new memory read as zero; `undo` if that fails, whoever keeps the error."""
        try:
            self._clear_block(block, size, stream)
        except BaseException:
            undo()
            raise
