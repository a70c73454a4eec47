"""A handle of the driver's that comes when it is needed, and again after it was given back."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Renewed:
    """One handle at a time.

    Parameters
    ----------
    make
        Makes one.
    destroy
        Gives one back; raises DriverError if the driver refuses.
    """

    def __init__(self, make: Callable[[], int], destroy: Callable[[int], object]) -> None:
        self._make = make
        self._destroy = destroy
        self._lock = threading.Lock()
        self._there = False
        self._closed = False
        self._handle = 0

    @property
    def handle(self) -> int:
        """The handle, made if there is none; after `close` the last one."""
        with self._lock:
            if not self._there and not self._closed:
                self._handle = self._make()
                self._there = True
            return self._handle

    @property
    def there(self) -> bool:
        """Whether there is one now."""
        return self._there

    def rest(self) -> None:
        """Give it back, until it is needed again.

        Raises DriverError if the driver refuses; a later call tries again.
        """
        with self._lock:
            if self._there:
                self._destroy(self._handle)
                self._there = False

    def close(self) -> None:
        """Give it back for good; raises as `rest`."""
        self.rest()
        self._closed = True
