"""Which memory is behind which addresses."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from umfpy.errors import InvalidArgument
from umfpy.providers.host.address_map import AddressMap


@dataclass
class Chunk:
    """A range of addresses and the physical memory behind it.

    ``mapped`` says whether it is really there, ``hidden`` that nobody may access it, ``unclean``
    that it has yet to be cleared, ``exported`` that it must not serve anybody else afterwards,
    ``stuck`` that a commit that failed could not take it away again; ``exporting`` counts the
    threads that are about to export it.
    """

    ptr: int
    size: int
    handle: int
    mapped: bool = False
    hidden: bool = True
    unclean: bool = False
    exported: bool = False
    stuck: bool = False
    exporting: int = 0

    @property
    def shared(self) -> bool:
        """Whether another process has it open, maybe, or may have in a moment."""
        return self.exported or self.exporting > 0

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.ptr + self.size


class ChunkTable:
    """The chunks of one provider, by address; each call is O(log of all), plus those it is for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._chunks: AddressMap[Chunk] = AddressMap()

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Enter chunks."""
        with self._lock:
            for chunk in chunks:
                self._chunks.put(chunk.ptr, chunk)

    def remove(self, chunks: Iterable[Chunk]) -> None:
        """Forget chunks."""
        with self._lock:
            for chunk in chunks:
                self._chunks.pop(chunk.ptr)

    def take(self, chunks: Sequence[Chunk]) -> None:
        """Forget chunks that are to be taken elsewhere.

        Raises
        ------
        InvalidArgument
            One was exported; all are still there.
        """
        with self._lock:
            shared = next((chunk for chunk in chunks if chunk.shared), None)
            if shared is not None:
                raise InvalidArgument(
                    f"the chunk at {shared.ptr:#x} was exported, and other processes may have it "
                    "open: free it instead"
                )
            for chunk in chunks:
                self._chunks.pop(chunk.ptr)

    @contextmanager
    def exporting(self, ptr: int, size: int) -> Iterator[list[Chunk]]:
        """Yield the chunks that make up a range, in order; they are exported if the body returns.

        From the beginning on they are not taken elsewhere, and serve nobody else once they are
        dropped, which the body does not keep other threads from.

        Raises
        ------
        InvalidArgument
            The range cuts a chunk, or not all of it has memory that may be accessed.
        """
        chunks = self.within(ptr, size)
        with self._lock:
            there = sum(chunk.size for chunk in chunks if self._is_usable(chunk))
            if there != size or not size:
                raise InvalidArgument(
                    f"{there} of {size} bytes at {ptr:#x} have memory that may be accessed: "
                    "commit it first"
                )
            for chunk in chunks:
                chunk.exporting += 1
        done = False
        try:
            yield chunks
            done = True
        finally:
            with self._lock:
                for chunk in chunks:
                    chunk.exporting -= 1
                    chunk.exported |= done

    def around(self, ptr: int, size: int) -> tuple[int, int]:
        """Return (start, bytes) from the chunk that a range begins in to the one it ends in.

        Raises InvalidArgument if it begins or ends where there is none.
        """
        with self._lock:
            first = self._chunks.last_before(ptr + 1)
            last = self._chunks.last_before(ptr + size)
        if first is None or last is None or first[1].end <= ptr or last[1].end < ptr + size:
            raise InvalidArgument(f"there is no memory behind all {size} bytes at {ptr:#x}")
        return first[0], last[1].end - first[0]

    def within(self, ptr: int, size: int) -> list[Chunk]:
        """Return the chunks in a range, in order.

        Raises
        ------
        InvalidArgument
            The range cuts a chunk; the message has its boundaries.
        """
        with self._lock:
            self._check_cut(ptr)
            self._check_cut(ptr + size)
            return self._chunks.between(ptr, ptr + size)

    def inside(self, ptr: int, size: int) -> list[Chunk]:
        """Return the chunks that lie wholly inside a range, in order."""
        with self._lock:
            found = self._chunks.between(ptr, ptr + size)
        if found and found[-1].end > ptr + size:
            found.pop()
        return found

    def around_cut(self, at: int) -> Chunk | None:
        """Return the chunk that an address lies inside, if any."""
        with self._lock:
            found = self._chunks.last_before(at)
        return found[1] if found is not None and found[1].end > at else None

    def check_cut(self, at: int) -> None:
        """Raise InvalidArgument if an address lies inside a chunk, with its boundaries."""
        with self._lock:
            self._check_cut(at)

    def _is_usable(self, chunk: Chunk) -> bool:
        """Whether a chunk is still there, and not about to go."""
        return self._chunks.get(chunk.ptr) is chunk and bool(chunk.handle) and not chunk.hidden

    def _check_cut(self, at: int) -> None:
        found = self._chunks.last_before(at)
        if found is None or found[1].end <= at:
            return
        chunk = found[1]
        raise InvalidArgument(
            f"{at:#x} lies inside a chunk of {chunk.size} bytes, from {chunk.ptr:#x} to "
            f"{chunk.end:#x}, which can only be mapped and dropped as a whole: use its boundaries"
        )


def runs(chunks: Iterable[Chunk]) -> Iterator[list[Chunk]]:
    """Group chunks, which are in order, by the contiguous ranges that they make up."""
    run: list[Chunk] = []
    for chunk in chunks:
        if run and run[-1].end != chunk.ptr:
            yield run
            run = []
        run.append(chunk)
    if run:
        yield run


def gaps(chunks: Iterable[Chunk], ptr: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield (start, bytes) of the parts of a range that none of the chunks in it covers."""
    end = ptr + size
    for chunk in chunks:
        if chunk.ptr > ptr:
            yield ptr, chunk.ptr - ptr
        ptr = chunk.end
    if ptr < end:
        yield ptr, end - ptr
