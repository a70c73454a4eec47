"""Mappings at addresses of any alignment, and the backing of anonymous memory."""

from __future__ import annotations

from typing import Protocol

from umfpy.errors import UmfpyError
from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.pages import Pages, place_pages
from umfpy.providers.host.system import (
    MADV_DONTNEED,
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_HUGETLB,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_NONE,
    PROT_READ_WRITE,
    System,
)


class Backing(Protocol):
    """What lies behind the addresses of a `MappedProvider`; lengths are whole pages."""

    pages: Pages

    def map(self, length: int, alignment: int) -> tuple[int, int]:
        """Return address and offset of `length` fresh bytes."""

    def give_back(self, offset: int, length: int) -> None:
        """Take a range back whose addresses are gone; never fails."""

    def drop(self, ptr: int, length: int, offset: int) -> None:
        """Let contents and backing go; `back` comes before the next access."""

    def back(self, offset: int, length: int) -> None:
        """Make sure that an access to a dropped range finds memory."""

    def clear(self, ptr: int, length: int, offset: int) -> None:
        """Let the contents go; the next access reads zero."""

    def close(self) -> None:
        """Let go of files; called once, when nothing is mapped any more."""


def map_aligned(
    system: System,
    length: int,
    alignment: int,
    page: int,
    flags: int,
    fd: int = -1,
    offset: int = 0,
    protection: int = PROT_READ_WRITE,
) -> int:
    """Return the address of a new mapping of `length` bytes: mmap(2).

    Alignments up to the page come by themselves.  For more, a longer range of addresses is
    reserved, its ends are given back, and the mapping replaces the middle.  (No other thread
    can get in between: the middle stays ours throughout.)
    """
    if alignment <= page:
        return system.call("mmap", None, length, protection, flags, fd, offset)
    reserved = length + alignment
    hold = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    start = system.call("mmap", None, reserved, PROT_NONE, hold, -1, 0)
    end = start + reserved
    try:
        ptr = round_up(start, alignment)
        if ptr > start:
            system.call("munmap", start, ptr - start)
            start = ptr
        if end > ptr + length:
            system.call("munmap", ptr + length, end - ptr - length)
            end = ptr + length
        return system.call("mmap", ptr, length, protection, flags | MAP_FIXED, fd, offset)
    except UmfpyError:
        system.call("munmap", start, end - start)
        raise


class AnonymousBacking:
    """Private memory without a file: mmap(2) with MAP_ANONYMOUS."""

    def __init__(self, system: System, pages: Pages, nodes: tuple[int, ...]) -> None:
        self._system = system
        self.pages = pages
        self._nodes = nodes
        huge = MAP_HUGETLB | pages.flags if pages.huge else 0
        self._flags = MAP_PRIVATE | MAP_ANONYMOUS | huge

    def map(self, length: int, alignment: int) -> tuple[int, int]:
        ptr = map_aligned(self._system, length, alignment, self.pages.size, self._flags)
        self._place(ptr, length)
        return ptr, ptr

    def reserve(self, length: int, alignment: int) -> int:
        """Return `length` addresses that nobody may access, and that count as no memory."""
        flags, page = self._flags | MAP_NORESERVE, self.pages.size
        ptr = map_aligned(self._system, length, alignment, page, flags, protection=PROT_NONE)
        self._place(ptr, length)
        return ptr

    def give_back(self, offset: int, length: int) -> None:
        """Nothing to do: the memory went with its addresses."""

    def drop(self, ptr: int, length: int, offset: int) -> None:
        self._system.call("madvise", ptr, length, MADV_DONTNEED)

    def back(self, offset: int, length: int) -> None:
        """Nothing to do: the kernel backs anonymous memory when it is touched."""

    clear = drop

    def close(self) -> None:
        """Nothing to do: there is no file."""

    def _place(self, ptr: int, length: int) -> None:
        try:
            place_pages(self._system, ptr, length, self.pages, self._nodes)
        except UmfpyError:
            self._system.call("munmap", ptr, length)
            raise
