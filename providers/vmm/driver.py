"""What has to be known of a driver to take memory apart from addresses."""

from __future__ import annotations

from typing import Protocol


class VmmDriver(Protocol):
    """Addresses and physical memory of one device.

    Every call may raise DriverError or OutOfMemoryError, and has done nothing then.  A handle is
    a physical object, which is mapped as a whole, and at one place at a time.
    """

    #: Whether one call unmaps several neighbours, or sets access to them.
    joins: bool

    def reserve(self, size: int) -> tuple[int, int]:
        """Return address and bytes of at least `size` addresses that nobody else gets.

        The address is a multiple of the device's page.
        """

    def unreserve(self, base: int, size: int) -> None:
        """Give back what `reserve` returned, with nothing mapped there."""

    def create(self, size: int) -> int:
        """Return a handle of `size` bytes of memory; their contents are anything."""

    def release(self, handle: int) -> None:
        """Give back a handle that is mapped nowhere."""

    def map(self, ptr: int, size: int, handle: int, *, accessible: bool) -> bool:
        """Put memory behind addresses; return whether it is accessible now.

        It is so at most if `accessible`; for the rest there is `set_access`.
        """

    def unmap(self, ptr: int, size: int) -> None:
        """Take memory from addresses: whole mappings that tile the range."""

    def set_access(self, ptr: int, size: int, *, accessible: bool) -> None:
        """Let the devices at whole mappings that tile the range, or nobody."""
