"""Which addresses of a provider have memory behind them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from umfpy.providers.host.range_set import Range, RangeSet


class Backed:
    """The addresses with memory, and those without whose old contents could not be dropped.

    The latter are nobody's until `commit`, which has to drop them first where zeros are wanted.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._backed = RangeSet()
        self._spoiled = RangeSet()

    def add(self, ptr: int, length: int) -> None:
        """Note that a range has memory, with the contents that it should have."""
        with self._lock:
            self._backed.add(ptr, ptr + length)
            self._spoiled.discard(ptr, ptr + length)

    def remove(self, ptr: int, length: int) -> None:
        """Note that a range has none any more."""
        with self._lock:
            self._backed.discard(ptr, ptr + length)

    def spoil(self, ptr: int, length: int) -> None:
        """Note that the contents of a range without memory are still there."""
        with self._lock:
            self._spoiled.add(ptr, ptr + length)

    def within(self, ptr: int, length: int) -> list[Range]:
        """Return the parts of a range that have memory."""
        with self._lock:
            return self._backed.within(ptr, ptr + length)

    def spoiled(self, ptr: int, length: int) -> list[Range]:
        """Return the parts of a range with contents that should be gone."""
        with self._lock:
            return self._spoiled.within(ptr, ptr + length)

    @contextmanager
    def leaving(self, ptr: int, length: int) -> Iterator[None]:
        """Forget a range, unless the body raises, which gives its addresses away.

        That is before they can be somebody else's.
        """
        with self._lock:
            backed = self._backed.discard(ptr, ptr + length)
            spoiled = self._spoiled.discard(ptr, ptr + length)
        try:
            yield
        except BaseException:
            with self._lock:
                for each in backed:
                    self._backed.add(*each)
                for each in spoiled:
                    self._spoiled.add(*each)
            raise
