"""Whom a pool asks, of its users, when memory has run out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

from umfpy.errors import InvalidArgument

#: Takes the bytes that are missing, and returns whether to try again.
OutOfMemoryCallback = Callable[[int], bool]


class Callbacks:
    """The callbacks of one pool, in the order in which they came.

    What one of them asks of the pool itself asks none: it would be asked for ever.
    """

    def __init__(self) -> None:
        self._callbacks: list[OutOfMemoryCallback] = []
        self._at_work: set[int] = set()  #: threads

    def add(self, callback: OutOfMemoryCallback) -> None:
        """Have one asked after all others; InvalidArgument if it cannot be called."""
        if not callable(callback):
            raise InvalidArgument(f"a callback takes the missing bytes; {callback!r} takes nothing")
        self._callbacks.append(callback)

    def asked(self, size: int) -> Iterator[Callable[[], bool]]:
        """Tell how each is asked for a request of `size` bytes, in this thread."""
        if threading.get_ident() not in self._at_work:
            for callback in self._callbacks:
                yield partial(self._ask, callback, size)

    def _ask(self, callback: OutOfMemoryCallback, size: int) -> bool:
        thread = threading.get_ident()
        self._at_work.add(thread)
        try:
            return callback(size)
        finally:
            self._at_work.discard(thread)
