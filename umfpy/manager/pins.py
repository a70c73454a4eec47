"""Which persistent memory a capture uses, and the handles that keep it."""

from __future__ import annotations

import weakref
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from umfpy.core.extents import Extent
from umfpy.core.handle import Handle, Slice, allocation_of, revive, wrap
from umfpy.core.pages import grant, page_of, take_extent
from umfpy.core.pool import Allocation
from umfpy.manager.persistent import PersistentPool


@dataclass(frozen=True)
class _Touched:
    """The last slice of a page that a capture saw."""

    holder: weakref.ref[Any]  #: the `Slice`, or the `Allocation` below one without a handle
    page: Extent
    size: int
    stream: int


class Pins:
    """Notes the persistent pages that an open capture uses, and keeps them for its graph."""

    def __init__(self, persistent: PersistentPool) -> None:
        self._persistent = persistent
        self._touched: dict[int, _Touched] | None = None  # [page], during a capture
        self._pins: weakref.WeakKeyDictionary[Allocation, weakref.WeakSet[Handle]]
        self._pins = weakref.WeakKeyDictionary()
        self._moved: weakref.WeakKeyDictionary[Handle, Handle] = weakref.WeakKeyDictionary()

    def still(self) -> AbstractContextManager[None]:
        """Return what keeps persistent memory where it is, for a ``with`` block."""
        return self._persistent.still()

    def start(self) -> None:
        """Note every page that is used from now on."""
        self._touched = {}

    def touch(self, allocation: Allocation, holder: weakref.ref[Any]) -> None:
        """Note the page of an allocation, if a capture is open and it is persistent."""
        touched = self._touched
        if touched is not None and allocation.pool is self._persistent:
            page = page_of(allocation)
            touched[page.index] = _Touched(holder, page, allocation.size, allocation.stream)

    def end(self, manager: object) -> list[Handle]:
        """Return a handle for each page that was noted, which keeps it for as long as it lives."""
        touched, self._touched = self._touched or {}, None
        # A copy: a thread that is late may still be noting its page.
        pins = [self._pin(one, manager) for one in list(touched.values())]
        made = [pin for pin in pins if pin is not None]
        for pin in made:
            self._pins.setdefault(allocation_of(pin, manager), weakref.WeakSet()).add(pin)
        return made

    def hold(self, allocation: Allocation) -> bool:
        """Return whether a pin holds this allocation."""
        return any(not pin.released for pin in self._pins.get(allocation, ()))

    def move(self, allocation: Allocation, assigned: Handle) -> None:
        """Have the pins of an allocation keep it, although it was bound to another handle."""
        for pin in self._pins.get(allocation, ()):
            if not pin.released:
                self._moved[pin] = assigned.clone()

    def _pin(self, touched: _Touched, manager: object) -> Handle | None:
        holder = touched.holder()
        if isinstance(holder, Slice):
            return revive(holder)
        if isinstance(holder, Allocation) and not holder.freed:
            return wrap(holder, manager)
        block = take_extent(self._persistent, touched.page, touched.size, touched.stream)
        if block is None:
            return None
        allocation = grant(self._persistent, block, touched.size, touched.stream)
        return wrap(allocation, manager)
