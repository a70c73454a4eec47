"""Pages that are cut into slices."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from umfpy.manager.errors import PoolCapacityExceeded
from umfpy.manager.holdings import Holdings
from umfpy.manager.options import SlicedOptions
from umfpy.manager.paged import PagedPool
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.resolve import MAX_PAGES


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

    def _grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        while size <= self.page_size and self._may_add_page():
            enter = partial(self._enter_free, self.page_size)
            if self._fetch(self.page_size, alignment, enter) is None:
                return None
            # Taking needs no lock of this pool: another thread may be quicker, and leave nothing.
            block = self._take_any(size, alignment, stream, index)
            if block is not None:
                return block
        return None

    def _may_add_page(self) -> bool:
        return self.max_pages is None or len(self.map.extents) < self.max_pages

    def _out_of_memory(self, size: int) -> Exception:
        if self.max_pages is None or self._may_add_page():
            return super()._out_of_memory(size)
        capacity = self.max_pages * self.page_size
        return PoolCapacityExceeded(self.name, size, capacity, self.map.counters()["used"])
