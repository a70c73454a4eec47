"""When a request is served from persistent memory."""

from __future__ import annotations

import enum

from umfpy.errors import InvalidArgument


class Mode(enum.Enum):
    """What requests are for: the step at hand, or the whole run."""

    AUTO = "auto"
    PERSISTENT = "persistent"


class Persistence(enum.Enum):
    """What a manager does with persistent memory."""

    ENABLED = "enabled"  #: in persistent mode
    SIZE_MATCH = "size-match"  #: also for sizes that persistent memory has had
    DISABLED = "disabled"  #: during captures alone; `MemoryManager.mode` is ignored
    ENFORCED = "enforced"  #: always; `MemoryManager.mode` is ignored

    @property
    def first_mode(self) -> Mode:
        return Mode.PERSISTENT if self is Persistence.ENFORCED else Mode.AUTO

    @property
    def honours_mode(self) -> bool:
        return self in (Persistence.ENABLED, Persistence.SIZE_MATCH)


def read_mode(mode: Mode | str) -> Mode:
    """Return a mode from its name; InvalidArgument for another."""
    try:
        return Mode(mode)
    except ValueError:
        raise InvalidArgument(f"a mode is 'auto' or 'persistent', not {mode!r}") from None


def read_persistence(name: Persistence | str) -> Persistence:
    """Return the choice from its name; InvalidArgument for another."""
    try:
        return Persistence(name.replace("_", "-") if isinstance(name, str) else name)
    except ValueError:
        choices = ", ".join(repr(choice.value) for choice in Persistence)
        raise InvalidArgument(f"persistent is one of {choices}, not {name!r}") from None
