"""What a pool over virtual memory and its provider must agree on."""

from __future__ import annotations

from collections.abc import Iterator

from umfpy import Pool
from umfpy.core.extents import COMING, HIDDEN, LEAVING, UNBACKED
from umfpy.provider import ChunkInfo


def agree(pool: Pool) -> None:
    """Raise unless pool and provider are of one opinion about every byte."""
    pool.check("full")
    provider, now = pool.provider, pool.stats()
    behind = [(chunk.ptr, chunk.ptr + chunk.size) for chunk in chunks_of(pool)]
    assert sum(end - start for start, end in behind) == now.reserved_bytes
    sums = {UNBACKED: 0, HIDDEN: 0}
    for start, span, used, state in pool.map.blocks():
        assert used or state not in (LEAVING, COMING), "nobody is at it any more"
        apart = not used and state in sums
        assert provider.properties(start).get("committed", True) is not apart
        if apart:
            sums[state] += span
        covered = sum(max(min(end, start + span) - max(at, start), 0) for at, end in behind)
        assert covered == (0 if apart and state == UNBACKED else span), "memory is where it is used"
    assert (sums[UNBACKED], sums[HIDDEN]) == (now.unbacked_bytes, now.hidden_bytes)
    known = [piece for extent in extents_of(pool) for piece in pool._cuts.pieces(extent)]
    for start, size in known:
        assert provider.properties(start).get("size", size) == size, "the provider's pieces"
    reserved = getattr(provider, "reserved_bytes", None)
    if reserved is not None:
        assert now.reserved_bytes <= reserved - provider.kept_bytes


def chunks_of(pool: Pool) -> Iterator[ChunkInfo]:
    """Yield the chunks behind all of a pool's extents."""
    for extent in extents_of(pool):
        yield from pool.provider.chunks(extent.base, extent.size)


def idle_bytes(pool: Pool) -> int:
    """Bytes of the chunks in which nothing is used."""
    used = [(start, start + span) for start, span, is_used, _ in pool.map.blocks() if is_used]
    return sum(
        chunk.size
        for chunk in chunks_of(pool)
        if all(end <= chunk.ptr or chunk.ptr + chunk.size <= start for start, end in used)
    )


def extents_of(pool: Pool) -> list:
    """The extents of a pool."""
    return list(pool.map.extents.values())
