"""What a pool of slabs does when memory has run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from umfpy.pools.rungs import brought_back, together
from umfpy.pools.shortage import ask_neighbours, can_ever_hold, out_of_memory

if TYPE_CHECKING:
    from umfpy.errors import OutOfMemoryError
    from umfpy.pools.base import ProviderPool
    from umfpy.pools.slab import SlabPool


def reclaimers(
    pool: SlabPool, parts: Sequence[ProviderPool], size: int
) -> Iterator[Callable[[], bool]]:
    """Return what may bring memory back, the cheapest first; each says whether it did.

    Nothing for a request beyond the device or the limit, which is to cost nobody anything.  To be
    called without the lock of the pool, whose `parts` hold its memory: pools ask each other.
    """
    if not can_ever_hold(pool.provider, pool.limit_bytes, size):
        return
    yield lambda: brought_back(together(part._trim(wait=True) for part in parts))
    yield from ask_neighbours(pool.provider, (pool, *parts))


def shortage(pool: SlabPool, size: int) -> OutOfMemoryError:
    """Return the error for a request of `size` bytes that nothing could be found for."""
    remedy = "free or drop allocations; a slab goes back only with its last cell"
    return out_of_memory(pool, pool.stats(), size, held="", remedy=remedy)
