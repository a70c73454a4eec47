"""From a list of pools as somebody wrote it to one that can be built."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from umfpy.manager.errors import (
    CapSmallerThanPage,
    EmptyPoolList,
    PoolsUnavailable,
    SliceLargerThanPage,
    TooManyPages,
    TooManyPools,
    ZeroSize,
)
from umfpy.manager.options import PoolOptions, SlicedOptions
from umfpy.manager.properties import MemoryProperties

#: A pool's place fits into a byte, of which one value means the persistent pool.
MAX_POOLS = 254
#: A page's place fits into 16 bits.
MAX_PAGES = 65535

_SIZES = ("page_size", "max_slice_size", "max_pool_size")


def resolve_pools(
    entries: Sequence[PoolOptions],
    properties: MemoryProperties,
    *,
    exclusive_only: bool = False,
    shrink: bool = False,
) -> tuple[PoolOptions, ...]:
    """Return the entries with sizes rounded up to the alignment, and nothing left out.

    Parameters
    ----------
    exclusive_only
        Whether sliced pools are unavailable.
    shrink
        Whether a cap below one page makes pages as large as the cap, and is no error.

    Raises
    ------
    EmptyPoolList, TooManyPools, PoolsUnavailable, ZeroSize, SliceLargerThanPage, \
CapSmallerThanPage, TooManyPages
        The first mistake, with entry, field, value and remedy.

    Notes
    -----
    A page may be larger than ``properties.max_page_size``, which only presets keep to.
    """
    if not entries:
        raise EmptyPoolList("the pool list is empty; give at least one pool, or a preset")
    if len(entries) > MAX_POOLS:
        raise TooManyPools(
            f"{len(entries)} pools were given; {MAX_POOLS} is the most: leave some out",
            count=len(entries),
        )
    return tuple(
        _sliced(place, entry, properties, exclusive_only, shrink)
        if isinstance(entry, SlicedOptions)
        else replace(entry, max_alloc_size=properties.align_up(entry.max_alloc_size))
        for place, entry in enumerate(entries)
    )


def _sliced(
    place: int,
    entry: SlicedOptions,
    properties: MemoryProperties,
    exclusive_only: bool,
    shrink: bool,
) -> PoolOptions:
    if exclusive_only:
        raise PoolsUnavailable(
            f"pools[{place}] is sliced, and sliced pools are unavailable here: use exclusive ones",
            entry=place,
            field="type",
            which="sliced",
        )
    for name in _SIZES:
        if getattr(entry, name) == 0:
            raise ZeroSize(
                f"pools[{place}] (sliced): {name} = 0; give a size above 0"
                + ("" if name == "page_size" else ", or leave the field out"),
                entry=place,
                field=name,
            )
    page = properties.align_up(entry.page_size)
    given = entry.max_slice_size
    largest = page if given is None else properties.align_up(given)
    if largest > page:
        _refuse_slice(place, largest, page)
    cap = entry.max_pool_size
    if cap is not None and cap < page:
        if not shrink:
            _refuse_cap(place, cap, page)
        page = max(properties.align_down(cap), properties.alignment)
        largest = min(largest, page)
    if cap is not None and cap // page > MAX_PAGES:
        _refuse_pages(place, cap, page)
    return replace(entry, page_size=page, max_slice_size=largest)


def _refuse_slice(place: int, largest: int, page: int) -> NoReturn:
    raise SliceLargerThanPage(
        f"pools[{place}] (sliced): max_slice_size = {largest} is more than page_size = {page}, "
        "both rounded up to the alignment; a slice can never span pages: lower the one, or "
        "raise the other",
        entry=place,
        field="max_slice_size",
        max_slice_size=largest,
        page_size=page,
    )


def _refuse_cap(place: int, cap: int, page: int) -> NoReturn:
    raise CapSmallerThanPage(
        f"pools[{place}] (sliced): max_pool_size = {cap} is less than one page, page_size = "
        f"{page} rounded up to the alignment; raise the cap, or lower page_size",
        entry=place,
        field="max_pool_size",
        max_pool_size=cap,
        page_size=page,
    )


def _refuse_pages(place: int, cap: int, page: int) -> NoReturn:
    raise TooManyPages(
        f"pools[{place}] (sliced): max_pool_size = {cap} holds {cap // page} pages of "
        f"{page} bytes, and {MAX_PAGES} is the most; raise page_size or lower the cap",
        entry=place,
        field="max_pool_size",
        pages=cap // page,
        limit=MAX_PAGES,
    )


def refuse_sliced_preset(name: str) -> NoReturn:
    raise PoolsUnavailable(
        f"preset {name!r} is made of sliced pools, which are unavailable here: use "
        "'exclusive_pages'",
        field="preset",
        which=name,
    )


def needs_sliced(pools: Sequence[PoolOptions]) -> bool:
    """Return whether any of the pools is a sliced one."""
    return any(isinstance(pool, SlicedOptions) for pool in pools)
