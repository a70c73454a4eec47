"""Choices that a user may name instead of importing them."""

from __future__ import annotations

import enum
from typing import TypeVar

from umfpy.errors import InvalidArgument

E = TypeVar("E", bound=enum.Enum)


def read_choice(kind: type[E], name: E | str, what: str) -> E:
    """Return a member of `kind` from its value, with ``-`` or ``_``.

    Raises InvalidArgument for another, which names `what` was asked for, and the choices.
    """
    try:
        return kind(name.replace("_", "-") if isinstance(name, str) else name)
    except ValueError:
        choices = [repr(choice.value) for choice in kind]
        known = " or ".join(choices) if len(choices) == 2 else "one of " + ", ".join(choices)
        raise InvalidArgument(f"{what} is {known}, not {name!r}") from None
