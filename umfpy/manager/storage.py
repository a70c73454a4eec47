"""Where a slice lies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Storage:
    """A range of memory; it keeps nothing alive."""

    ptr: int  #: address of the first byte
    offset: int  #: of it in its page
    size: int  #: bytes, as requested
