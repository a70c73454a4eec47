"""What of other processes' memory is open here."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from umfpy.errors import InvalidArgument


class Opened:
    """The ranges that one provider has opened, each with the native base that it lies in.

    A driver may answer several opens of the same memory with the same address; such a range is
    open as often.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bases: dict[tuple[int, int], int] = {}  # by address and size
        self._opens: Counter[tuple[int, int]] = Counter()

    def __len__(self) -> int:
        return len(self._bases)

    def enter(self, ptr: int, size: int, base: int) -> None:
        """Count one more open of `size` bytes at `ptr`."""
        with self._lock:
            self._bases[ptr, size] = base
            self._opens[ptr, size] += 1

    @contextmanager
    def leaving(self, ptr: int, size: int) -> Iterator[int]:
        """Count one open less, while the driver closes the base that is yielded.

        If the driver refuses, the range is open as before.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes is open at `ptr`.
        """
        base = self._leave(ptr, size)
        try:
            yield base
        except BaseException:
            self.enter(ptr, size, base)
            raise

    def _leave(self, ptr: int, size: int) -> int:
        key = ptr, size
        with self._lock:
            base = self._bases.get(key)
            if base is None:
                raise InvalidArgument(f"no imported memory of {size} bytes at {ptr:#x}")
            self._opens[key] -= 1
            if not self._opens[key]:
                del self._opens[key], self._bases[key]
            return base
