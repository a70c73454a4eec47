"""What a pool of slabs does when memory has run out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from umfpy.errors import OutOfMemoryError
from umfpy.pools.rungs import brought_back, together
from umfpy.pools.source import neighbours
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.pools.slab import SlabPool


def reclaimers(
    pool: SlabPool, parts: Sequence[ProviderPool], size: int
) -> Iterator[Callable[[], bool]]:
    """Return what may bring memory back, the cheapest first; each says whether it did.

    Nothing for a request beyond the device or the limit, which is to cost nobody anything.  To be
    called without the lock of the pool, whose `parts` hold its memory: pools ask each other.
    """
    if not _can_ever_hold(pool, size):
        return
    yield lambda: brought_back(together(part._trim(wait=True) for part in parts))
    for other in neighbours(pool.provider, (pool, *parts)):
        yield partial(_trim, other)


def _can_ever_hold(pool: SlabPool, size: int) -> bool:
    info = pool.provider.memory_info()
    bounds = [1 << 62, pool.limit_bytes, info[1] if info else None]
    return all(size <= bound for bound in bounds if bound is not None)


def _trim(pool: ProviderPool) -> bool:
    return brought_back(pool.trim())


def shortage(pool: SlabPool, size: int) -> OutOfMemoryError:
    """Return the error for a request of `size` bytes that nothing could be found for."""
    now = pool.stats()
    info = pool.provider.memory_info()
    words = [
        f"pool {pool.name!r} has no {format_size(size)} ({size} bytes) left",
        f"live {format_size(now.used_bytes)} in {now.live_allocations} allocations, "
        f"held {format_size(now.reserved_bytes)}",
    ]
    if info is not None:
        words.append(f"device: {format_size(info[0])} of {format_size(info[1])} free")
    if pool.limit_bytes is not None:
        words.append(f"limit_bytes is {format_size(pool.limit_bytes)}: raise it if you can")
    words.append("free or drop allocations; a slab goes back only with its last cell")
    return OutOfMemoryError(
        "; ".join(words),
        requested=size,
        used=now.used_bytes,
        reserved=now.reserved_bytes,
        limit=pool.limit_bytes,
        largest_free=now.largest_free_bytes,
        provider=pool.provider.name,
    )
