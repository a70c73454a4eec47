"""A limit for the memory of several managers together."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from umfpy.errors import InvalidArgument
from umfpy.units import format_size, parse_size

if TYPE_CHECKING:
    from umfpy.manager.holdings import Holdings


class Budget:
    """The most bytes that managers sharing it hold from their providers, all in all.

    Give it to several `MemoryManager` objects, such as one a stream of a device.  When one of
    them needs more than is left, the idle pages of the others go back first.

    Parameters
    ----------
    limit
        Bytes, or text such as ``"12GiB"``.
    """

    def __init__(self, limit: int | str) -> None:
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[Holdings] = weakref.WeakSet()
        self._coming = 0
        self.limit_bytes = limit

    @property
    def limit_bytes(self) -> int:
        """The limit; lowered below what is held, it takes effect as memory goes back."""
        return self._limit

    @limit_bytes.setter
    def limit_bytes(self, limit: int | str) -> None:
        if isinstance(limit, bool) or not isinstance(limit, (int, str)):
            raise InvalidArgument(f"a budget is a number of bytes or text, not {limit!r}")
        self._limit = parse_size(limit)

    @property
    def held_bytes(self) -> int:
        """What the managers hold, and what they are just fetching."""
        return self._coming + sum(member.totals.reserved for member in self.members())

    def members(self) -> list[Holdings]:
        """Return the holdings of the managers that share this budget."""
        return list(self._members)

    def join(self, holdings: Holdings) -> None:
        """Have one more manager share it."""
        self._members.add(holdings)

    @contextmanager
    def claim(self, size: int) -> Iterator[bool]:
        """Set `size` bytes aside while they are fetched; yields whether that is within the limit.

        By the end they are held by a manager, or have come to nothing.
        """
        with self._lock:
            granted = self.held_bytes + size <= self._limit
            if granted:
                self._coming += size
        try:
            yield granted
        finally:
            if granted:
                with self._lock:
                    self._coming -= size

    def __repr__(self) -> str:
        return f"Budget({format_size(self.held_bytes)} of {format_size(self._limit)} held)"
