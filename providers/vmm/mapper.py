"""What is done to chunks: to each of several, or, if the driver refuses, to none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from umfpy.errors import UmfpyError
from umfpy.providers.host.later import Later
from umfpy.providers.vmm.chunks import Chunk, runs
from umfpy.providers.vmm.driver import VmmDriver
from umfpy.providers.vmm.handles import Handles


class Mapper:
    """Maps, shows, hides and drops chunks.

    Where the driver can, several chunks in a row are given access, and unmapped, with one call.
    A chunk says itself what it is like, also after a call has failed and what was done before
    could not be undone.
    """

    def __init__(self, driver: VmmDriver, handles: Handles, later: Later) -> None:
        self._driver = driver
        self._handles = handles
        self._later = later

    def make(self, ptr: int, sizes: Iterable[int], into: list[Chunk]) -> None:
        """Append chunks of these sizes, from `ptr` on, to a list; to be shown or dropped.

        Where it raises, what could be made is in the list.
        """
        for size in sizes:
            into.append(Chunk(ptr, size, self._handles.take(size)))
            ptr += size

    def reuse(self, ptr: int, size: int, into: list[Chunk]) -> int:
        """Append chunks of memory that is kept to a list, the largest that fit first.

        Returns how many of the `size` bytes from `ptr` on they make up.
        """
        end = ptr
        while kept := self._handles.take_kept(ptr + size - end):
            handle, length = kept
            into.append(Chunk(end, length, handle))
            end += length
        return end - ptr

    def show(self, chunks: Sequence[Chunk]) -> None:
        """Let the devices at chunks, and map them where they are not."""
        for chunk in chunks:
            if not chunk.mapped:
                self._map(chunk, accessible=True)
        for run in self._groups(chunks):
            if any(chunk.hidden for chunk in run):
                self._set_access(run, accessible=True)

    def hide(self, chunks: Sequence[Chunk]) -> None:
        """Let nobody at chunks, which keep their contents."""
        done: list[Chunk] = []
        try:
            for run in self._groups(chunk for chunk in chunks if not chunk.hidden):
                self._set_access(run, accessible=False)
                done += run
        except UmfpyError:
            with contextlib.suppress(UmfpyError):
                self.show(done)
            raise

    def unmap(self, chunks: Sequence[Chunk]) -> None:
        """Take chunks from their addresses; they keep their handles.

        The device must be done with them.
        """
        shown = [chunk for chunk in chunks if not chunk.hidden]
        done: list[Chunk] = []
        try:
            for run in self._groups(chunk for chunk in chunks if chunk.mapped):
                self._driver.unmap(*_range(run))
                for chunk in run:
                    chunk.mapped, chunk.hidden = False, True
                done += run
        except UmfpyError:
            self._restore(done, shown)
            raise

    def drop(self, chunks: Sequence[Chunk]) -> None:
        """Unmap chunks and give their memory back.  Called again, it does what was left."""
        self.unmap(chunks)
        for chunk in chunks:
            if chunk.handle:
                handle, chunk.handle = chunk.handle, 0
                self._handles.give(handle, chunk.size, reusable=not chunk.shared)

    def move(self, chunks: Sequence[Chunk], ptr: int) -> list[Chunk]:
        """Take the memory of chunks to `ptr` on, in this order; return the chunks there."""
        shown = [chunk for chunk in chunks if not chunk.hidden]
        moved: list[Chunk] = []
        try:
            self.unmap(chunks)
            for chunk in chunks:
                moved.append(replace(chunk, ptr=ptr, mapped=False, hidden=True, unclean=False))
                ptr += chunk.size
            self.show(moved)
        except UmfpyError:
            self._later.attempt(lambda: self.unmap(moved))
            for chunk, other in zip(chunks, moved, strict=False):
                # At two places for now: nobody else must get it.
                chunk.exported = chunk.exported or other.mapped
            self._restore(chunks, shown)
            raise
        return moved

    def _restore(self, chunks: Sequence[Chunk], shown: Sequence[Chunk]) -> None:
        """Map chunks again, and show those that were.

        The failure that led here is the one to tell; what a chunk is like then, it says itself.
        """
        visible = {chunk.ptr for chunk in shown}
        with contextlib.suppress(UmfpyError):
            for chunk in chunks:
                if not chunk.mapped:
                    self._map(chunk, accessible=chunk.ptr in visible)
            self.show(shown)

    def _map(self, chunk: Chunk, *, accessible: bool) -> None:
        place = chunk.ptr, chunk.size, chunk.handle
        chunk.hidden = not self._driver.map(*place, accessible=accessible)
        chunk.mapped = True

    def _set_access(self, run: Sequence[Chunk], *, accessible: bool) -> None:
        self._driver.set_access(*_range(run), accessible=accessible)
        for chunk in run:
            chunk.hidden = not accessible

    def _groups(self, chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
        """Group chunks, which are in order, by what one call of the driver is for."""
        return runs(chunks) if self._driver.joins else ([chunk] for chunk in chunks)


def _range(run: Sequence[Chunk]) -> tuple[int, int]:
    return run[0].ptr, run[-1].end - run[0].ptr
