"""Addresses for memory that has none."""

from __future__ import annotations

from umfpy.errors import UmfpyError
from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.pages import SYSTEM_PAGE
from umfpy.providers.host.system import (
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_NONE,
    System,
)


class Addresses:
    """Ranges of this process's address space that nothing else can get while they are reserved.

    They are mapped without any access: whoever follows one is stopped.  No memory backs them.
    """

    def __init__(self, provider: str) -> None:
        self._system = System(provider)
        self._reserved: dict[int, tuple[int, int]] = {}

    def reserve(self, size: int, alignment: int) -> int:
        """Return the start of `size` addresses: mmap(2) with PROT_NONE.

        Raises
        ------
        OutOfMemoryError
            The address space has no such range left.
        """
        alignment = max(alignment, SYSTEM_PAGE)
        length = round_up(size, SYSTEM_PAGE) + alignment - SYSTEM_PAGE
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        start = self._system.call("mmap", None, length, PROT_NONE, flags, -1, 0)
        ptr = round_up(start, alignment)
        self._reserved[ptr] = start, length
        return ptr

    def release(self, ptr: int) -> None:
        """Give the addresses back: munmap(2); never fails.

        A process with vm.max_map_count mappings may not get rid of one.  Then the range stays
        reserved, which costs no memory, and nobody else gets it.
        """
        # Forgotten first: once unmapped, another thread may get the same addresses.
        reserved = self._reserved.pop(ptr)
        try:
            self._system.call("munmap", *reserved)
        except UmfpyError:
            self._reserved[ptr] = reserved

    def release_all(self) -> None:
        """Give everything back."""
        for ptr in list(self._reserved):
            self.release(ptr)
