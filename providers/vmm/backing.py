"""Addresses, chunks of memory, and what brings the two together."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.providers.host.later import Later
from umfpy.providers.vmm.addresses import AddressSpace
from umfpy.providers.vmm.chunks import Chunk, ChunkTable, gaps, runs
from umfpy.providers.vmm.driver import VmmDriver
from umfpy.providers.vmm.handles import Handles
from umfpy.providers.vmm.mapper import Mapper
from umfpy.providers.vmm.units import Units


class Backing:
    """Ranges of addresses, and the chunks behind them; it knows nothing of pieces.

    All sizes are multiples of the unit.  A method that raises has changed nothing.  Two calls at
    once never have to do with the same range: the provider sees to that.

    Parameters
    ----------
    span
        Bytes of addresses to reserve at once.
    keep_bytes
        The most memory to keep while it is not mapped.
    wait
        Waits until the device is done with the memory.
    """

    def __init__(
        self,
        driver: VmmDriver,
        units: Units,
        later: Later,
        *,
        span: int,
        keep_bytes: int,
        wait: Callable[[], object],
    ) -> None:
        self.units = units
        self.handles = Handles(driver, keep_bytes)
        self._space = AddressSpace(driver, units.page, span)
        self._mapper = Mapper(driver, self.handles, later)
        self._later = later
        self._wait = wait
        self._table = ChunkTable()

    def close(self) -> None:
        """Give back what is kept, and the addresses, when nothing is taken any more.

        Raises DriverError if the driver refuses; called again, it does what was left.
        """
        self._later.settle()
        self.handles.trim()
        self._space.trim()

    def trim(self, keep_bytes: int) -> int:
        """Release memory that is kept beyond `keep_bytes`; return how much went."""
        self._later.settle()
        return self.handles.trim(keep_bytes)

    def take(self, size: int, alignment: int) -> int:
        """Return new addresses without memory."""
        return self._space.take(size, alignment)

    def take_backed(self, size: int, alignment: int) -> int:
        """Return new addresses with memory behind them, accessible; contents are anything."""
        ptr = self._space.take(size, alignment)
        self._back_new(ptr, size)
        return ptr

    def extend(self, end: int, size: int) -> bool:
        """Back the addresses from the end of a taken range on; False if they are taken."""
        if size and not self._space.take_at(end, size):
            return False
        self._back_new(end, size)
        return True

    def give(self, ptr: int, size: int) -> list[Chunk]:
        """Take addresses and memory back, and return what memory was there."""
        chunks = self.drop(ptr, size)
        self._space.give(ptr, size)
        return chunks

    def drop(self, ptr: int, size: int) -> list[Chunk]:
        """Take the memory behind a range back, and return what was there.

        The addresses stay taken.
        """
        chunks = self.within(ptr, size)
        if chunks:
            self._wait()
            self._mapper.drop(chunks)
            self._table.remove(chunks)
        return chunks

    def hide(self, ptr: int, size: int) -> None:
        """Let nobody at the memory behind a range, which keeps its contents."""
        chunks = self.within(ptr, size)
        if chunks:
            self._wait()
            self._mapper.hide(chunks)

    def commit(
        self,
        ptr: int,
        size: int,
        clear: Callable[[int, int], None] | None,
        chunk_size: int | None = None,
    ) -> None:
        """Show what is hidden in a range, and back the rest: with what is kept, then with new.

        One call gives access to all of it.

        Parameters
        ----------
        clear
            Clears (start, bytes) that were backed; None leaves there what is there.
        chunk_size
            The bytes of most new chunks, where these may differ; a multiple of the unit.
        """
        there = self.within(ptr, size)
        hidden = [chunk for chunk in there if chunk.hidden]
        fresh: list[Chunk] = []
        try:
            for start, length in gaps(there, ptr, size):
                reused = self._mapper.reuse(start, length, fresh)
                self._make(start + reused, length - reused, fresh, chunk_size)
            for chunk in fresh:
                chunk.unclean = True
            chunks = sorted([*there, *fresh], key=lambda chunk: chunk.ptr)
            self._mapper.show(chunks)
            _clear(chunks, clear)
        except BaseException:
            with contextlib.suppress(UmfpyError):
                self._mapper.hide(hidden)
            with contextlib.suppress(UmfpyError):
                self._mapper.drop(fresh)
            # What even that could not take away is there, and known to be.
            stuck = [chunk for chunk in fresh if chunk.handle]
            for chunk in stuck:
                chunk.stuck = True
            self._table.add(stuck)
            raise
        for chunk in there:
            chunk.stuck = False
        self._table.add(fresh)

    def move(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        """Take the memory of ranges (start, bytes) to a taken range without any."""
        chunks = [chunk for source in sources for chunk in self.within(*source)]
        found = sum(chunk.size for chunk in chunks)
        if found != size:
            raise InvalidArgument(f"the sources have {found} bytes of memory; {size} are wanted")
        self._withdraw([chunk for chunk in self.within(to, size) if chunk.stuck])
        if self.within(to, size):
            raise InvalidArgument(f"there is memory at {to:#x} already: decommit it first")
        self._wait()
        self._table.take(chunks)  # from here on nobody exports them
        moved: Sequence[Chunk] = chunks
        try:
            moved = self._mapper.move(chunks, to)
        finally:
            self._table.add(moved)

    def exporting(self, ptr: int, size: int) -> AbstractContextManager[list[Chunk]]:
        """Yield the chunks that make up a range, to be exported; see `ChunkTable.exporting`."""
        return self._table.exporting(ptr, size)

    def around(self, ptr: int, size: int) -> tuple[int, int]:
        """Return the range of whole chunks that a range with memory lies in."""
        return self._table.around(ptr, size)

    def within(self, ptr: int, size: int) -> list[Chunk]:
        """Return the chunks in a range; InvalidArgument if it cuts one."""
        return self._table.within(ptr, size)

    def inside(self, ptr: int, size: int) -> list[Chunk]:
        """Return the chunks that lie wholly inside a range."""
        return self._table.inside(ptr, size)

    def check_cut(self, at: int) -> None:
        """Raise InvalidArgument if an address lies inside a chunk."""
        chunk = self._table.around_cut(at)
        if chunk is not None and chunk.stuck:
            self._withdraw([chunk])
        self._table.check_cut(at)

    def _withdraw(self, stuck: Sequence[Chunk]) -> None:
        """Take away what a commit that failed left behind."""
        if stuck:
            self._mapper.drop(stuck)
            self._table.remove(stuck)

    def reservation(self, ptr: int) -> int:
        """Return the base of the reservation that an address is in."""
        return self._space.reservation(ptr)

    def _back_new(self, ptr: int, size: int) -> None:
        """Back addresses that were just taken; they go back if that fails."""
        chunks: list[Chunk] = []
        try:
            self._make(ptr, size, chunks)
            self._mapper.show(chunks)
        except BaseException:
            self._later.attempt(partial(_retreat, self._mapper, self._space, chunks, ptr, size))
            raise
        self._table.add(chunks)

    def _make(self, ptr: int, size: int, into: list[Chunk], wanted: int | None = None) -> None:
        self._mapper.make(ptr, self.units.layout(size, wanted), into)


def _clear(chunks: Sequence[Chunk], clear: Callable[[int, int], None] | None) -> None:
    for run in runs(chunk for chunk in chunks if chunk.unclean):
        if clear is not None:
            clear(run[0].ptr, run[-1].end - run[0].ptr)
        for chunk in run:
            chunk.unclean = False


def _retreat(mapper: Mapper, space: AddressSpace, chunks: list[Chunk], ptr: int, size: int) -> None:
    mapper.drop(chunks)
    space.give(ptr, size)
