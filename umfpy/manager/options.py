"""What one pool of a layout is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True)
class SlicedOptions:
    """Pages that are cut into slices.

    Attributes
    ----------
    page_size
        Bytes that are taken from the provider at a time.
    max_slice_size
        The largest request in bytes; None for a whole page.
    max_pool_size
        The most bytes to hold; None for no cap.
    dealloc_period
        After how many requests pages that stay idle go back: each is looked at five times in
        that many.  None: by explicit cleanup alone, or when memory is short.
    """

    page_size: int
    max_slice_size: int | None = None
    max_pool_size: int | None = None
    dealloc_period: int | None = None


@dataclass(frozen=True)
class ExclusiveOptions:
    """Pages that hold one slice each.

    Attributes
    ----------
    max_alloc_size
        The largest request in bytes; 0 is legal, for a pool of empty slices.
    dealloc_period
        As of `SlicedOptions`.
    """

    max_alloc_size: int
    dealloc_period: int | None = None


@dataclass(frozen=True)
class DirectOptions:
    """Pages for single slices that are larger than every other page of a preset.

    Attributes
    ----------
    max_alloc_size
        The largest request in bytes.
    dealloc_period
        As of `SlicedOptions`.
    """

    max_alloc_size: int
    dealloc_period: int | None = None


PoolOptions: TypeAlias = "SlicedOptions | ExclusiveOptions | DirectOptions"

#: What a list may have, by the name that an entry's ``type`` gives.
KINDS: dict[str, type[SlicedOptions] | type[ExclusiveOptions]] = {
    "sliced": SlicedOptions,
    "exclusive": ExclusiveOptions,
}
