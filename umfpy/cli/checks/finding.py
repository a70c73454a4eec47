"""What a check has found."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any


class State(str, enum.Enum):
    """How things are."""

    OK = "ok"
    ABSENT = "absent"  #: not there, which is fine unless it is wanted
    PROBLEM = "problem"  #: there, but it does not work


@dataclass(frozen=True)
class Finding:
    """One subject; sizes among the facts are bytes."""

    subject: str
    state: State
    summary: str
    facts: dict[str, Any] = field(default_factory=dict)
    advice: str = ""  #: what to do about it; empty if there is nothing to do


def installed_version(distribution: str) -> str | None:
    """Return the version of an installed distribution, or None, without importing it."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
