"""What a caller passes, checked where it comes in.

Each check returns the value as what it was checked for, and raises InvalidArgument otherwise: a
message that names the argument, what it can be, and what it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from operator import index
from pathlib import Path
from typing import Any, TypeVar

from umfpy.errors import InvalidArgument

T = TypeVar("T")


def check_flag(value: object, name: str) -> bool:
    """Return a flag: True or False, and nothing that merely counts as either."""
    if isinstance(value, bool):
        return value
    raise InvalidArgument(f"{name} must be True or False, not {value!r}")


def as_number(value: object) -> int | None:
    """Return a whole number, also one of NumPy's; None for what is none, such as a bool."""
    if isinstance(value, bool):
        return None
    try:
        return index(value)  # type: ignore[arg-type]  # whether it is one is the question
    except TypeError:
        return None


def check_number(
    value: object, name: str, *, least: int | None = 0, most: int | None = None
) -> int:
    """Return a whole number from `least` to `most`, None for no bound; no bool is one."""
    number = as_number(value)
    if (
        number is not None
        and (least is None or number >= least)
        and (most is None or number <= most)
    ):
        return number
    raise InvalidArgument(f"{name} must be a whole number{_range(least, most)}, not {value!r}")


def check_device(value: object, name: str = "device") -> int:
    """Return the ordinal of a device; whether there is such a one only a driver can tell."""
    number = as_number(value)
    if number is None:
        raise InvalidArgument(
            f"{name} must be the ordinal of a device, a whole number such as 0, not {value!r}"
        )
    return number


def check_choice(value: object, choices: Iterable[str], name: str) -> str:
    """Return one of the words that there are."""
    words = tuple(choices)
    if isinstance(value, str) and value in words:
        return value
    raise InvalidArgument(f"{name} must be one of {', '.join(map(repr, words))}, not {value!r}")


def check_kind(value: object, kind: type[T], name: str, what: str) -> T:
    """Return an object of a class, which `what` names as a caller would."""
    if isinstance(value, kind):
        return value
    raise InvalidArgument(f"{name} must be {what}, not {value!r}")


def check_callable(value: T, name: str, what: str) -> T:
    """Return what can be called; `what` says what a call does."""
    if callable(value):
        return value
    raise InvalidArgument(f"{name} must be a callable that {what}, not {value!r}")


def check_items(value: Iterable[T], name: str, what: str) -> tuple[T, ...]:
    """Return a list of `what` as a tuple; a text is none."""
    if isinstance(value, Iterable) and not isinstance(value, (str, bytes, bytearray)):
        return tuple(value)
    raise InvalidArgument(f"{name} must be a list of {what}, not {value!r}")


def check_path(value: Any, name: str) -> Path:
    """Return a path of text; a number would be a descriptor of whoever has it open."""
    try:
        path = os.fspath(value)
    except TypeError:
        path = None
    if isinstance(path, str) and "\0" not in path:
        return Path(path)
    raise InvalidArgument(f"{name} must be a path, as text or a pathlib.Path, not {value!r}")


def _range(least: int | None, most: int | None) -> str:
    if least is None:
        return "" if most is None else f" up to {most}"
    return f" from {least} on" if most is None else f" from {least} to {most}"
