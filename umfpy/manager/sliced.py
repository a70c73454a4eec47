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
from umfpy.manager.sleepers import Choice, choose_part, choose_window
from umfpy.pools.growth import round_up
from umfpy.pools.supply import WHOLE
from umfpy.provider import Capability


class SlicedPool(PagedPool):
    """Slices share pages of one size; free neighbours are merged at once.

    Where the alignment is a power of two a slice comes and goes by the compiled way of every
    pool: constant time, whatever lives beside it.

    The free parts of a page go down a rung where the provider can cut them out, and where the
    page is made up of its units; else only idle pages do, each as a whole.
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
        unit = max(self.provider.granularity(self.page_size), self.map.granule)
        cuts = Capability.SPLIT in self.provider.capabilities and self.page_size % unit == 0
        self._lower_in(unit if cuts else WHOLE)

    def _lower_in(self, unit: int) -> None:
        """Have memory go down and come back in so many bytes."""
        self._waking_unit = unit
        self._lowers_whole = unit == WHOLE

    def intervals(self) -> Sequence[tuple[int, int]]:
        if self.max_pages is not None:
            return ((0, self.max_slice_size),)
        # What leaves less than a fifth of a page unused may have one of its own.
        return ((0, self.max_slice_size), (self.page_size * 4 // 5 + 1, self.page_size))

    def padding_bytes(self) -> int:
        now = self.map.counters()
        return int(now["used"] - now["requested"])

    def page_bytes(self, size: int) -> int:
        return self.page_size

    def _choose_asleep(self, size: int, alignment: int) -> Choice | None:
        wanted, unit = round_up(size, self.map.granule), self._waking_unit
        choice = choose_part(self._sleepers, wanted, alignment, unit)
        if choice is None and not self._lowers_whole:
            choice = choose_window(self.map, wanted, alignment, unit)
        return choice

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
        if self.max_pages is None or not self._is_full(size):
            return super()._out_of_memory(size)
        capacity = self.max_pages * self.page_size
        return PoolCapacityExceeded(self.name, size, capacity, self.map.counters()["used"])

    def _is_full(self, size: int) -> bool:
        """Whether the cap is in the way: no page may come, and nothing that sleeps would do."""
        with self._growing:
            return not self._may_add_page() and self._asleep_for(size, 0) is None
