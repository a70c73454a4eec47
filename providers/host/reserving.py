"""Addresses and memory apart: what pools need that take memory to where it is needed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.provider import Capability, ChunkInfo
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.mapped import MappedProvider
from umfpy.providers.host.mapping import AnonymousBacking
from umfpy.providers.host.pieces import Piece
from umfpy.providers.host.range_set import Range
from umfpy.providers.host.system import PROT_NONE, PROT_READ_WRITE

#: `chunks` cuts at addresses that are multiples of this: what a huge page of x86-64 and of
#: AArch64 with pages of 4 KiB has (Linux, Documentation/admin-guide/mm/transhuge.rst), so that
#: memory which is taken chunk by chunk leaves whole ones.
_CHUNK = 2 << 20


class ReservingProvider(MappedProvider):
    """`reserve`, `chunks` and `remap` for private memory, where RESERVE is announced.

    The kernel backs private memory page by page, when it is touched: there are no physical
    objects, and nothing is moved.  Memory goes elsewhere by being given back here and committed
    there.
    """

    def reserve(self, size: int, alignment: int = 0) -> int:
        """Return addresses for `size` bytes without memory: mmap(2), none, MAP_NORESERVE.

        They do not count as memory that was promised (proc(5), overcommit_memory), nor does
        what is committed there later: the kernel finds memory for a page when it is touched.
        Raises as `alloc`.
        """
        backing = self._anonymous()
        size, alignment = check_request(size, alignment, self.name)
        length = round_up(size, backing.pages.size)
        with self._coming(size, "reserve"):
            ptr = backing.reserve(length, max(alignment, backing.pages.recommended))
            self._pieces.add(ptr, Piece(size, ptr, usable=False))
        return ptr

    def chunks(self, ptr: int, size: int) -> list[ChunkInfo]:
        """Return the committed parts of a range, by address, and cut at multiples of 2 MiB.

        With larger huge pages at multiples of those.  Such memory can be split at every page;
        the ends of the range are ends of chunks, and so are those of what is committed.
        """
        unit = max(_CHUNK, self._anonymous().pages.recommended)
        parts = self._backed.within(ptr, self._length(size))
        return [ChunkInfo(start, end - start) for part in parts for start, end in _cut(part, unit)]

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        """Commit one piece, and decommit others that have as much memory: mprotect(2), madvise(2).

        Raises
        ------
        InvalidArgument
            Not whole pieces, or `to` has memory, or the sources have not as much as `size`.
        DriverError, OutOfMemoryError
            What mprotect(2) answered; nothing has changed.
        """
        self._anonymous()
        ranges = [(ptr, self._length(length)) for ptr, length in sources]
        with contextlib.ExitStack() as held:
            pieces = [
                held.enter_context(self._pieces.changed(ptr, length, usable=False))
                for ptr, length in sources
            ]
            held.enter_context(self._pieces.changed(to, size, usable=True))
            length = self._length(size)
            self._check_move(ranges, to, length)
            usable = [at for at, piece in zip(ranges, pieces, strict=True) if piece.usable]
            self._swap(usable, to, length)
            self._backed.add(to, length)
            for at in ranges:
                self._leave(*at)

    def _check_move(self, sources: Sequence[tuple[int, int]], to: int, length: int) -> None:
        found = sum(end - start for at in sources for start, end in self._backed.within(*at))
        if found != length:
            raise InvalidArgument(f"the sources have {found} bytes of memory; {length} are wanted")
        if self._backed.within(to, length):
            raise InvalidArgument(f"there is memory at {to:#x} already: decommit it first")

    def _swap(self, sources: Sequence[tuple[int, int]], to: int, length: int) -> None:
        """Make the target accessible and the sources inaccessible, or change nothing."""
        with contextlib.ExitStack() as undo:
            self._protect(to, length, PROT_READ_WRITE)
            undo.callback(self._protect, to, length, PROT_NONE)
            for at in sources:
                self._protect(*at, PROT_NONE)
                undo.callback(self._protect, *at, PROT_READ_WRITE)
            undo.pop_all()

    def _leave(self, ptr: int, length: int) -> None:
        """Drop what nobody can reach any more: if the kernel refuses, `commit` does it."""
        self._backed.remove(ptr, length)
        try:
            self._backing.drop(ptr, length, ptr)
        except UmfpyError:
            self._backed.spoil(ptr, length)

    def _anonymous(self) -> AnonymousBacking:
        if Capability.RESERVE not in self.capabilities:
            raise self._lacks(Capability.RESERVE)
        assert isinstance(self._backing, AnonymousBacking)
        return self._backing


def _cut(part: Range, unit: int) -> Iterator[Range]:
    start, end = part
    while start < end:
        following = min((start // unit + 1) * unit, end)
        yield start, following
        start = following
