"""Chunks of memory that a pool can do without where they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umfpy.pools.window import Window
    from umfpy.provider import ChunkInfo, Provider


def spare_chunks(
    provider: Provider, free: Iterable[tuple[int, int]], window: Window
) -> list[ChunkInfo]:
    """Return the chunks in which nothing is used, outside a window, the largest first.

    Of equal ones the highest comes first: what lies low is used first, and stays full.  Chunks
    that other processes may have open stay where they are.
    """
    unit = provider.granularity()
    found = [
        chunk
        for start, end in _outside(free, window)
        for chunk in _chunks(provider, -(-start // unit) * unit, end // unit * unit)
        if not chunk.exported
    ]
    return sorted(found, key=lambda chunk: (-chunk.size, -chunk.ptr))


def divide(chunks: Sequence[ChunkInfo], size: int) -> tuple[list[ChunkInfo], list[ChunkInfo]]:
    """Return chunks of together at most `size` bytes, the largest that fit, and the others."""
    taken: list[ChunkInfo] = []
    left: list[ChunkInfo] = []
    for chunk in chunks:
        if chunk.size <= size:
            taken.append(chunk)
            size -= chunk.size
        else:
            left.append(chunk)
    return taken, left


def _outside(free: Iterable[tuple[int, int]], window: Window) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of what a window leaves of free ranges (start, bytes)."""
    for start, size in free:
        end = start + size
        if start < window.start:
            yield start, min(end, window.start)
        if end > window.end:
            yield max(start, window.end), end


def _chunks(provider: Provider, start: int, end: int) -> Iterable[ChunkInfo]:
    """Return the chunks between two multiples of the provider's unit."""
    return provider.chunks(start, end - start) if start < end else ()
