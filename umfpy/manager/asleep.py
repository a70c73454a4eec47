"""Pages of which nothing is used, and what of them went down a rung and sleeps there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from umfpy.core.extents import HIDDEN, UNBACKED, innermost

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap

#: The states of memory that sleeps; what is hidden has its memory still.
ASLEEP = (HIDDEN, UNBACKED)


class IdlePages(NamedTuple):
    """Pages without a used slice.

    ``ready`` are those that requests can take as they are, ``asleep`` those that went down a rung,
    as a whole or in part.
    """

    ready: list[Extent]
    asleep: list[Extent]


def any_asleep(space: ExtentMap) -> bool:
    """Return whether any memory of a map sleeps."""
    now = space.counters()
    return bool(now["hidden"] or now["unbacked"])


def idle_pages(space: ExtentMap) -> IdlePages:
    """Return the idle pages of a map.

    O(pages); where a page is in several states, O(pages + slices).
    """
    free = space.free_extents()
    down = {page.index: page for page in _pages_asleep(space)}
    if not down:
        return IdlePages(free, [])
    whole = {page.index for page in free}
    ready = [page for page in free if page.index not in down]
    asleep = [page for page in free if page.index in down]
    partly = [page for index, page in down.items() if index not in whole]
    return IdlePages(ready, asleep + _without_slices(partly, space))


def _pages_asleep(space: ExtentMap) -> Iterator[Extent]:
    for state in ASLEEP:
        for start, _ in space.free_ranges(state):
            page = innermost(start)
            if page is not None and page.map is space:
                yield page


def _without_slices(pages: Sequence[Extent], space: ExtentMap) -> list[Extent]:
    """Return those pages of a map in which no block is used."""
    if not pages:
        return []
    used = [start for start, _, is_used, _ in space.blocks() if is_used]
    return [
        page
        for page in pages
        if bisect_left(used, page.base) == bisect_left(used, page.base + page.size)
    ]
