"""Taking memory until there is none."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from umfpy import OutOfMemoryError

T = TypeVar("T")


def until_exhausted(allocate: Callable[[], T]) -> tuple[list[T], OutOfMemoryError]:
    """Call `allocate` until memory runs out; return what it gave, and the error."""
    taken: list[T] = []
    while True:
        try:
            taken.append(allocate())
        except OutOfMemoryError as error:
            return taken, error
