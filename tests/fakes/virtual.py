"""What a pool over virtual memory and its provider must agree on."""

from __future__ import annotations

from collections.abc import Iterator

from umfpy import Pool
from umfpy.core.extents import COMING, HIDDEN, LEAVING, UNBACKED
from umfpy.provider import ChunkInfo

Block = tuple[int, int, int]  #: where it starts, its bytes, and its state


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


def idle_chunks(pool: Pool) -> list[ChunkInfo]:
    """The chunks in which nothing is used."""
    used = [(start, start + span) for start, span, is_used, _ in pool.map.blocks() if is_used]
    return [
        chunk
        for chunk in chunks_of(pool)
        if all(end <= chunk.ptr or chunk.ptr + chunk.size <= start for start, end in used)
    ]


def least_held(pool: Pool, size: int, alignment: int) -> int:
    """The fewest bytes that a pool could hold and serve one more request, wherever it has room.

    Tries every place that begins or ends with a free block, one by one.
    """
    granule = pool.provider.granule
    size = max(-(-size // granule), 1) * granule
    held, idle = pool.stats().reserved_bytes, idle_chunks(pool)

    def at(run: list[Block], low: int, high: int) -> int:
        around = [
            chunk.size for chunk in idle if chunk.ptr + chunk.size <= low or high <= chunk.ptr
        ]
        return held - sum(around) + _new_bytes(run, low, high, pool.provider.granularity())

    return min(
        at(run, low, low + size)
        for run in _free_runs(pool)
        for low in _places(run, size, max(alignment, granule))
    )


def _places(run: list[Block], size: int, alignment: int) -> Iterator[int]:
    """Yield where so many bytes fit into a run of blocks, up or down from one of their ends."""
    first, last = run[0][0], run[-1][0] + run[-1][1]
    for start, span, _ in run:
        for low in (
            -(-start // alignment) * alignment,
            (start + span - size) // alignment * alignment,
        ):
            if first <= low and low + size <= last:
                yield low


def _free_runs(pool: Pool) -> list[list[Block]]:
    """Free blocks side by side in one extent."""
    bases = {extent.base for extent in extents_of(pool)}
    runs: list[list[Block]] = []
    end = 0
    for start, span, used, state in pool.map.blocks():
        if used:
            continue
        if start != end or start in bases:
            runs.append([])
        runs[-1].append((start, span, state))
        end = start + span
    return runs


def _new_bytes(run: list[Block], low: int, high: int, unit: int) -> int:
    """Bytes of the whole units without memory of a run that lie between two addresses."""
    new = 0
    for start, span, state in run:
        first, last = max(start, low) - start, min(start + span, high) - start
        if state == UNBACKED and first < last:
            new += min(-(-last // unit) * unit, span) - first // unit * unit
    return new


def extents_of(pool: Pool) -> list:
    """The extents of a pool."""
    return list(pool.map.extents.values())
