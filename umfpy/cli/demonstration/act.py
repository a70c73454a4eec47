"""The form of an act."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from umfpy.cli.demonstration.device import Device
from umfpy.errors import UmfpyError

#: What an act found; sizes are bytes.
Facts: TypeAlias = "dict[str, Any]"


class Promise(UmfpyError):
    """Something that umfpy promises did not happen."""


def keep(holds: bool, promise: str, facts: Facts) -> None:
    """Raise `Promise` unless it `holds`."""
    if not holds:
        raise Promise(f"this should hold and does not: {promise}; {facts}")


@dataclass(frozen=True)
class Act:
    """One part of the demonstration."""

    key: str  #: in ``--json``
    title: str
    run: Callable[[Device], Facts]
    tell: Callable[[Facts], Iterator[str]]  #: the facts as lines for people
