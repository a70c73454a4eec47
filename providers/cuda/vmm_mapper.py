"""What is done to chunks: to each of several, or, if the driver refuses, to none."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from umfpy.errors import UmfpyError
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.vmm_chunks import Chunk, runs
from umfpy.providers.cuda.vmm_handles import Handles
from umfpy.providers.cuda.vmm_later import Later


class Mapper:
    """Maps, shows, hides and drops chunks.

    Several chunks in a row are given access, and unmapped, with one call.  A chunk says itself
    what it is like, also after a call has failed and what was done before could not be undone.

    Parameters
    ----------
    devices
        Ordinals of those that get access.
    """

    def __init__(
        self, driver: CudaDriver, handles: Handles, later: Later, devices: Sequence[int]
    ) -> None:
        self._driver = driver
        self._handles = handles
        self._later = later
        self._access = access_of(driver, devices, "READWRITE")
        self._no_access = access_of(driver, devices, "NONE")

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
        """Let the devices at chunks, and map them where they are not: cuMemMap, cuMemSetAccess."""
        for chunk in chunks:
            if not chunk.mapped:
                self._driver.call("cuMemMap", chunk.ptr, chunk.size, 0, chunk.handle, 0)
                chunk.mapped = True
        for run in runs(chunks):
            if any(chunk.hidden for chunk in run):
                self._set_access(run, self._access)
                _mark(run, hidden=False)

    def hide(self, chunks: Sequence[Chunk]) -> None:
        """Let nobody at chunks, which keep their contents: cuMemSetAccess, none."""
        done: list[Chunk] = []
        try:
            for run in runs(chunk for chunk in chunks if not chunk.hidden):
                self._set_access(run, self._no_access)
                _mark(run, hidden=True)
                done += run
        except UmfpyError:
            with contextlib.suppress(UmfpyError):
                self.show(done)
            raise

    def unmap(self, chunks: Sequence[Chunk]) -> None:
        """Take chunks from their addresses: cuMemUnmap; they keep their handles.

        The device must be done with them.
        """
        shown = [chunk for chunk in chunks if not chunk.hidden]
        done: list[Chunk] = []
        try:
            for run in runs(chunk for chunk in chunks if chunk.mapped):
                self._driver.call("cuMemUnmap", run[0].ptr, run[-1].end - run[0].ptr)
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
                self._handles.give(handle, chunk.size, reusable=not chunk.exported)

    def move(self, chunks: Sequence[Chunk], ptr: int) -> list[Chunk]:
        """Take the memory of chunks to `ptr` on, in this order; return the chunks there."""
        shown = [chunk for chunk in chunks if not chunk.hidden]
        moved: list[Chunk] = []
        try:
            self.unmap(chunks)
            for chunk in chunks:
                moved.append(replace(chunk, ptr=ptr, mapped=False, hidden=True))
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
        with contextlib.suppress(UmfpyError):
            for chunk in chunks:
                if not chunk.mapped:
                    self._driver.call("cuMemMap", chunk.ptr, chunk.size, 0, chunk.handle, 0)
                    chunk.mapped = True
            self.show(shown)

    def _set_access(self, run: Sequence[Chunk], access: list[Any]) -> None:
        length = run[-1].end - run[0].ptr
        self._driver.call("cuMemSetAccess", run[0].ptr, length, access, len(access))


def _mark(chunks: Iterable[Chunk], *, hidden: bool) -> None:
    for chunk in chunks:
        chunk.hidden = hidden


def access_of(driver: CudaDriver, devices: Sequence[int], protection: str) -> list[Any]:
    """Return a CUmemAccessDesc for each device; `protection` is NONE, READ or READWRITE."""
    names = driver.bindings
    found = []
    for ordinal in devices:
        one = names.CUmemAccessDesc()
        one.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        one.location.id = ordinal
        one.flags = getattr(names.CUmemAccess_flags, f"CU_MEM_ACCESS_FLAGS_PROT_{protection}")
        found.append(one)
    return found
