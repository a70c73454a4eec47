"""What a `MemoryManager` refuses, and why.

::

    ConfigurationError
    ├── MalformedConfiguration   an entry, field or value that is none
    ├── EmptyPoolList
    ├── TooManyPools             count
    ├── ZeroSize                 field
    ├── SliceLargerThanPage      max_slice_size, page_size
    ├── CapSmallerThanPage       max_pool_size, page_size
    ├── TooManyPages             pages, limit
    └── PoolsUnavailable         which
    CapacityExceeded, OutOfMemoryError
    ├── PoolCapacityExceeded     size, capacity, in_use
    └── BufferTooBig             size, largest
"""

from __future__ import annotations

from typing import Any

from umfpy.errors import (
    CapacityExceeded,
    ConfigurationError,
    InvalidArgument,
    OutOfMemoryError,
)
from umfpy.units import format_size


class LayoutError(ConfigurationError):
    """A list of pools that cannot be used; the attributes are the numbers in the message.

    ``entry`` is the place in the list, None if it is not about one; ``field`` the name of the
    field, None if it is not about one.
    """

    def __init__(
        self, message: str, *, entry: int | None = None, field: str | None = None, **numbers: Any
    ) -> None:
        super().__init__(message)
        self.entry = entry
        self.field = field
        self.__dict__.update(numbers)


class MalformedConfiguration(LayoutError):
    """An unknown kind of pool or field, a missing field, or a value that cannot be read."""


class EmptyPoolList(LayoutError):
    """There is no entry."""


class TooManyPools(LayoutError):
    """More entries than a layout holds."""

    count: int


class ZeroSize(LayoutError):
    """A size that must not be 0 is."""


class SliceLargerThanPage(LayoutError):
    """A slice can never span pages."""

    max_slice_size: int
    page_size: int


class CapSmallerThanPage(LayoutError):
    """Not one page fits under the cap."""

    max_pool_size: int
    page_size: int


class TooManyPages(LayoutError):
    """More pages under the cap than a pool can have."""

    pages: int
    limit: int


class PoolsUnavailable(LayoutError):
    """The layout needs sliced pools where there are none."""

    which: str


def has_capture(manager: str) -> InvalidArgument:
    """Return the error for a second capture inside of one."""
    return InvalidArgument(f"{manager!r} has a capture open already; end it first")


class PoolCapacityExceeded(CapacityExceeded, OutOfMemoryError):
    """A sliced pool is at its cap.

    Attributes
    ----------
    size
        Bytes asked for.
    capacity
        The most bytes that the pool may hold: whole pages.
    in_use
        Bytes that live slices take.
    """

    def __init__(self, pool: str, size: int, capacity: int, in_use: int) -> None:
        super().__init__(
            f"pool {pool!r} cannot hold {format_size(size)} ({size} bytes) more: its capacity is "
            f"{capacity} bytes, of which {in_use} are in use; drop handles, raise max_pool_size, "
            "or have a later pool that takes as much and has room, with spill=True",
            requested=size,
            used=in_use,
            limit=capacity,
        )
        self.size = size
        self.capacity = capacity
        self.in_use = in_use


class BufferTooBig(CapacityExceeded, OutOfMemoryError):
    """No pool of the layout takes a request of this size.

    Attributes
    ----------
    size
        Bytes asked for.
    largest
        The largest request that some pool takes.
    """

    def __init__(self, manager: str, size: int, largest: int) -> None:
        super().__init__(
            f"no pool of {manager!r} takes {format_size(size)} ({size} bytes): the largest request "
            f"is {format_size(largest)} ({largest} bytes); give a layout with larger pages, or a "
            "larger max_page_size to a preset",
            requested=size,
        )
        self.size = size
        self.largest = largest
