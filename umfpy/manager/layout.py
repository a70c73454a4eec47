"""The dynamic pools of a manager, and which of them serves a request."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from umfpy.manager.direct import DirectPool
from umfpy.manager.errors import BufferTooBig
from umfpy.manager.exclusive import ExclusivePool
from umfpy.manager.holdings import Holdings
from umfpy.manager.options import DirectOptions, PoolOptions, SlicedOptions
from umfpy.manager.paged import PagedPool
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.sliced import SlicedPool
from umfpy.manager.uneven import UnevenSlicedPool
from umfpy.units import format_size


class Layout:
    """Pools in the order of the configuration: the first that accepts a size serves it.

    The sizes at which the answer changes are worked out beforehand, so that it costs a search
    among these, however many pools there are.
    """

    def __init__(self, pools: Sequence[PagedPool], name: str) -> None:
        self.pools = tuple(pools)
        self._name = name
        self._ranges = [pool.intervals() for pool in pools]
        edges = {0}
        for ranges in self._ranges:
            for low, high in ranges:
                edges.update((low, high + 1))
        self._starts = sorted(edges)
        self._first = [self._first_from(0, start) for start in self._starts]

    def pool_for(self, size: int) -> PagedPool:
        """Return the first pool that accepts `size` bytes; BufferTooBig if none does."""
        place = self._first[bisect_right(self._starts, size) - 1]
        if place is None:
            raise self._too_big(size)
        return self.pools[place]

    def next_pool(self, pool: PagedPool, size: int) -> PagedPool | None:
        """Return the first pool after `pool` that accepts `size` bytes."""
        place = self._first_from(self.pools.index(pool) + 1, size)
        return None if place is None else self.pools[place]

    def _first_from(self, place: int, size: int) -> int | None:
        for later in range(place, len(self.pools)):
            if any(low <= size <= high for low, high in self._ranges[later]):
                return later
        return None

    def _too_big(self, size: int) -> BufferTooBig:
        largest = max(high for ranges in self._ranges for _, high in ranges)
        return BufferTooBig(self._name, size, largest)


def build_layout(
    holdings: Holdings,
    properties: MemoryProperties,
    name: str,
    pools: Sequence[PoolOptions],
) -> Layout:
    """Make the pools that resolved options describe."""
    return Layout(
        [
            _build(holdings, properties, f"{name}/{place}", options)
            for place, options in enumerate(pools)
        ],
        name,
    )


def _build(
    holdings: Holdings, properties: MemoryProperties, prefix: str, options: PoolOptions
) -> PagedPool:
    if isinstance(options, SlicedOptions):
        even = properties.alignment == properties.granule
        kind = SlicedPool if even else UnevenSlicedPool
        title = f"{prefix} sliced {format_size(options.page_size)}"
        return kind(holdings, properties, title, options)
    if isinstance(options, DirectOptions):
        return DirectPool(holdings, properties, f"{prefix} direct", options)
    title = f"{prefix} exclusive {format_size(options.max_alloc_size)}"
    return ExclusivePool(holdings, properties, title, options)
