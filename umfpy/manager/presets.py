"""The layouts that have a name."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from umfpy.manager.options import DirectOptions, ExclusiveOptions, PoolOptions, SlicedOptions
from umfpy.manager.properties import MemoryProperties

_SMALLEST_CUT = 32 << 20  # pages from here on get pools of smaller ones beside them
_LOWEST_SIZE = 32 << 10
_SIZES = 24
_PERIOD = 5000  # requests, for each whole GiB of a pool's size and one


def sub_slices(properties: MemoryProperties) -> tuple[PoolOptions, ...]:
    """Pages of a few sizes, each a quarter of the next, cut into slices.

    Smaller pages take smaller parts of themselves, so that a large request does not keep a page
    that small ones have worn.  The last pool takes whatever fits the largest page; a pool for
    empty slices comes first.
    """
    pools: list[PoolOptions] = []
    page, halvings = properties.max_page_size, 1
    while page >= _SMALLEST_CUT:
        page = properties.align_up(page // 4)
        pools.append(SlicedOptions(page, max(page >> halvings, 1)))
        halvings += 1
    largest = max(properties.align_down(properties.max_page_size), properties.alignment)
    last = SlicedOptions(largest, largest)
    return (ExclusiveOptions(0), *reversed(pools), last, *_beyond(properties))


def exclusive_pages(properties: MemoryProperties) -> tuple[PoolOptions, ...]:
    """A page for each slice, in pools whose sizes are spaced by their logarithm."""
    low, high = math.log(_LOWEST_SIZE), math.log(properties.max_page_size)
    sizes = {
        properties.align_up(int(math.exp(low + (high - low) * step / (_SIZES - 1))))
        for step in range(_SIZES)
    }
    pools = (ExclusiveOptions(size, _period(size)) for size in sorted(sizes))
    return (*pools, *_beyond(properties))


def _beyond(properties: MemoryProperties) -> tuple[DirectOptions, ...]:
    """The pool for what is larger than the largest page, where that is no limit."""
    largest = properties.largest_request
    if largest is None:
        return ()
    return (DirectOptions(largest, _period(properties.max_page_size)),)


def _period(size: int) -> int:
    return _PERIOD * round(1 + size / (1 << 30))


PRESETS: Mapping[str, Callable[[MemoryProperties], tuple[PoolOptions, ...]]] = {
    "sub_slices": sub_slices,
    "exclusive_pages": exclusive_pages,
}
