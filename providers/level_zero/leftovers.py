"""What could not be given back when it should have been."""

from __future__ import annotations

import threading

from umfpy.errors import DriverError, OutOfMemoryError
from umfpy.providers.level_zero.driver import LevelZeroDriver


class Leftovers:
    """Calls that release something that nobody uses any more, and have failed: tried again later.

    Where such a call fails, what it was part of is either done, and must not be reported as
    failed, or has failed already, for a reason that matters more.
    """

    def __init__(self, driver: LevelZeroDriver) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._calls: list[tuple[str, tuple[int, ...]]] = []

    def give_back(self, name: str, *args: int) -> None:
        """Call a function that releases something; if it fails, `settle` calls it again."""
        try:
            self._driver.call(name, *args)
        except (DriverError, OutOfMemoryError):
            with self._lock:
                self._calls.append((name, args))

    def settle(self) -> None:
        """Call again what has failed, in the same order.

        Raises
        ------
        DriverError, OutOfMemoryError
            A call failed again; a later `settle` tries it once more.
        """
        with self._lock:
            while self._calls:
                name, args = self._calls[0]
                self._driver.call(name, *args)
                self._calls.pop(0)
