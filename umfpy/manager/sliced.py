"""Pages that are cut into slices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import index as as_index
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.core.pages import grant, start_of, stream_number, take_span
from umfpy.core.pool import Allocation
from umfpy.errors import AlignmentError
from umfpy.manager.errors import PoolCapacityExceeded
from umfpy.manager.holdings import Holdings
from umfpy.manager.options import SlicedOptions
from umfpy.manager.paged import PagedPool
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.resolve import MAX_PAGES

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class SlicedPool(PagedPool):
    """Slices share pages of one size; free neighbours are merged at once.

    Where the alignment is a power of two a slice comes and goes by the compiled way of every
    pool: constant time, whatever lives beside it.
    """

    kind = "sliced"

    def __init__(
        self,
        holdings: Holdings,
        properties: MemoryProperties,
        name: str,
        options: SlicedOptions,
    ) -> None:
        super().__init__(holdings, properties, name, options.dealloc_period)
        self.page_size = options.page_size
        self.max_slice_size = options.max_slice_size or options.page_size
        cap = options.max_pool_size
        self.max_pages = None if cap is None else min(cap // self.page_size, MAX_PAGES)

    def intervals(self) -> Sequence[tuple[int, int]]:
        if self.max_pages is not None:
            return ((0, self.max_slice_size),)
        # What leaves less than a fifth of a page unused may have one of its own.
        return ((0, self.max_slice_size), (self.page_size * 4 // 5 + 1, self.page_size))

    def padding_bytes(self) -> int:
        now = self.map.counters()
        return int(now["used"] - now["requested"])

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        """Return a block where none that fits is free; what `Pool.allocate` calls then."""
        block = self._take_or_grow(size, alignment, stream, index)
        holdings = self.holdings()
        if block is None and holdings is not None and holdings.reclaim(size):
            block = self._take_or_grow(size, alignment, stream, index)
        if block is None:
            raise self._out_of_memory(size)
        return block

    def _out_of_memory(self, size: int) -> Exception:
        now = self.map.counters()
        if self.max_pages is not None and now["extents"] >= self.max_pages:
            return PoolCapacityExceeded(
                self.name, size, self.max_pages * self.page_size, now["used"]
            )
        holdings = self.holdings()
        if holdings is None:
            return self._gone()
        return holdings.out_of_memory(size, self)

    def _take_or_grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        if size > self.page_size:
            return None
        with self._growing:
            while True:
                block = self._take(size, alignment, stream, index)
                if block is None and self.map.streams > 1 and not self.frozen:
                    # What another stream freed is as good, once the device was waited for.
                    self.synchronize()
                    block = self._take(size, alignment, stream, index)
                if block is not None:
                    return block
                if self.max_pages is not None and len(self.map.extents) >= self.max_pages:
                    return None
                page = self._fetch(
                    self.page_size, alignment, partial(self._enter_free, self.page_size)
                )
                if page is None:
                    return None

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        return self._try_take(size, alignment, stream, index)


class UnevenSlicedPool(SlicedPool):
    """The same for an alignment that is no power of two.

    The map counts in the largest power of two that divides it, and every slice is a multiple of
    the alignment, so that everything else is, too.
    """

    def allocate(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> Allocation:
        if zero:
            self._refuse_zero()
        handle = stream_number(stream)
        block = self._block(as_index(size), as_index(alignment), handle, index=False)
        allocation = grant(self, block, as_index(size), handle)
        if zero:
            self._clear(allocation.ptr, allocation.size, handle)
        return allocation

    def malloc(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> int:
        if zero:
            self._refuse_zero()
        handle = stream_number(stream)
        ptr = start_of(self, self._block(as_index(size), as_index(alignment), handle, index=True))
        if zero:
            self._clear(ptr, as_index(size), handle)
        return ptr

    def _block(self, size: int, alignment: int, stream: int, *, index: bool) -> int:
        if alignment > self._properties.granule:
            raise AlignmentError(
                f"pool {self.name!r} has slices at multiples of {self.unit} bytes, and none that "
                f"are aligned to {alignment}"
            )
        block = self._take(size, 0, stream, index)
        return self._obtain(size, 0, stream, index) if block is None else block

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        span = self._properties.align_up(size) or self.unit
        return take_span(self, size, span, stream, index)
