"""What could not be undone when it should have been."""

from __future__ import annotations

import threading
from collections.abc import Callable

from umfpy.errors import DriverError, OutOfMemoryError


class Later:
    """Steps that give something back and have failed: tried again later.

    Where such a step fails, what it was part of is either done, and must not be reported as
    failed, or has failed already, for a reason that matters more.  A step that is called again
    goes on where it failed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps: list[Callable[[], object]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def attempt(self, step: Callable[[], object]) -> None:
        """Do it now; if the driver refuses, `settle` does it."""
        try:
            step()
        except (DriverError, OutOfMemoryError):
            with self._lock:
                self._steps.append(step)

    def settle(self) -> None:
        """Do what has failed, in the same order.

        Raises
        ------
        DriverError, OutOfMemoryError
            A step failed again; a later `settle` tries it once more.
        """
        with self._lock:
            while self._steps:
                self._steps[0]()
                self._steps.pop(0)
