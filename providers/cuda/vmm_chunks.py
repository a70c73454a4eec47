"""Which memory is behind which addresses."""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from umfpy.errors import InvalidArgument

#: An allocation is cut into about this many chunks, so that parts of it can go by themselves.
#: Each costs its own calls: in the modelled latencies four make an allocation of 100 MiB half
#: again as expensive as one does, and eight twice.
PARTS = 4

#: No chunk is larger: 1 GiB costs per byte hardly more than one cuMemAlloc of all.
LARGEST = 1 << 30


class ChunkInfo(NamedTuple):
    """A range with one physical object behind it, which is mapped and dropped as a whole.

    ``exported`` says that another process may have it open, so that it is never used again for
    anything else.
    """

    ptr: int
    size: int
    exported: bool


@dataclass
class Chunk:
    """A range of addresses and the physical memory behind it.

    ``mapped`` says whether it is really there, ``hidden`` that nobody may access it, ``unclean``
    that it has yet to be cleared, ``exported`` that it must not serve anybody else afterwards.
    """

    ptr: int
    size: int
    handle: int
    mapped: bool = False
    hidden: bool = True
    unclean: bool = False
    exported: bool = False

    @property
    def end(self) -> int:
        """The address behind the last byte."""
        return self.ptr + self.size


def chunk_unit(size: int, granularity: int) -> int:
    """Return the bytes of most chunks of an allocation of `size` bytes, a power of two."""
    share = max(size // PARTS, 1)
    return max(min(1 << (share.bit_length() - 1), LARGEST), granularity)


def layout(size: int, unit: int, granularity: int) -> Iterator[int]:
    """Yield the sizes of the chunks that make up `size` bytes, a multiple of the granularity.

    Whole units first, then powers of two times the granularity, so that nothing is lost by
    rounding, and chunks of one allocation fit in another.
    """
    while size:
        while unit > size:
            unit = max(unit // 2 // granularity * granularity, granularity)
        yield unit
        size -= unit


class ChunkTable:
    """The chunks of one provider, by address."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts: list[int] = []
        self._chunks: dict[int, Chunk] = {}

    def add(self, chunks: Iterable[Chunk]) -> None:
        """Enter chunks."""
        with self._lock:
            for chunk in chunks:
                bisect.insort(self._starts, chunk.ptr)
                self._chunks[chunk.ptr] = chunk

    def remove(self, chunks: Iterable[Chunk]) -> None:
        """Forget chunks."""
        with self._lock:
            for chunk in chunks:
                del self._starts[bisect.bisect_left(self._starts, chunk.ptr)]
                del self._chunks[chunk.ptr]

    def within(self, ptr: int, size: int) -> list[Chunk]:
        """Return the chunks in a range, in order; O(log of all, plus those).

        Raises
        ------
        InvalidArgument
            The range cuts a chunk; the message has its boundaries.
        """
        with self._lock:
            first = bisect.bisect_left(self._starts, ptr)
            last = bisect.bisect_left(self._starts, ptr + size)
            found = [self._chunks[start] for start in self._starts[first:last]]
            edges = self._starts[first - 1 : first] + self._starts[last - 1 : last]
            for chunk in [self._chunks[start] for start in edges]:
                for cut in (ptr, ptr + size):
                    if chunk.ptr < cut < chunk.end:
                        raise InvalidArgument(
                            f"{cut:#x} lies inside a chunk of {chunk.size} bytes, from "
                            f"{chunk.ptr:#x} to {chunk.end:#x}, which can only be mapped and "
                            "dropped as a whole: use its boundaries"
                        )
            return found


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
