"""Where a slice lies."""

from __future__ import annotations

from dataclasses import dataclass

from umfpy.core.pages import page_of
from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument


@dataclass(frozen=True)
class Storage:
    """A range of memory; it keeps nothing alive."""

    ptr: int  #: address of the first byte
    offset: int  #: of it in its page
    size: int  #: bytes, as requested

    def part(self, start: int, end: int) -> Storage:
        """Return the bytes from `start` up to `end`; InvalidArgument if they do not lie in it."""
        if not 0 <= start <= end <= self.size:
            raise InvalidArgument(
                f"bytes {start} to {end} do not lie in a slice of {self.size} bytes"
            )
        return Storage(self.ptr + start, self.offset + start, end - start)


def storage_of(allocation: Allocation) -> Storage:
    """Return where a live allocation lies in its page."""
    return Storage(
        ptr=allocation.ptr,
        offset=allocation.ptr - page_of(allocation).base,
        size=allocation.size,
    )
