"""When a request is served from persistent memory."""

from __future__ import annotations

import enum


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
