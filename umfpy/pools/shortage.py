"""What all pools say and ask when memory has run out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from umfpy.errors import OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.rungs import brought_back
from umfpy.pools.source import neighbours
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.pools.stats import PoolStats
    from umfpy.provider import Provider

#: No extent map takes as many bytes.
MOST = 1 << 62


def can_ever_hold(provider: Provider, limit: int | None, size: int) -> bool:
    """Whether giving anything up could help: a request beyond the device costs nobody else."""
    info = provider.memory_info()
    bounds = [MOST, limit, info[1] if info else None]
    return all(size <= bound for bound in bounds if bound is not None)


def ask_neighbours(provider: Provider, own: Iterable[object]) -> Iterator[Callable[[], bool]]:
    """Tell how each other pool of the source is asked to give back, but for those of `own`."""
    for pool in neighbours(provider, own):
        yield partial(_trim, pool)


def _trim(pool: ProviderPool) -> bool:
    return brought_back(pool.trim())


def out_of_memory(
    pool: ProviderPool, now: PoolStats, size: int, *, held: str, remedy: str
) -> OutOfMemoryError:
    """Return the error for a request of `size` bytes that nothing could be found for.

    `held` says in what the pool holds its memory, and `remedy` what a person can do.
    """
    info = pool.provider.memory_info()
    words = [
        f"pool {pool.name!r} has no {format_size(size)} ({size} bytes) left",
        f"live {format_size(now.used_bytes)} in {now.live_allocations} allocations, "
        f"held {format_size(now.reserved_bytes)}{held}",
    ]
    if info is not None:
        words.append(f"device: {format_size(info[0])} of {format_size(info[1])} free")
    if pool.limit_bytes is not None:
        words.append(f"limit_bytes is {format_size(pool.limit_bytes)}: raise it if you can")
    if captures.is_frozen(pool.provider):
        words.append("a capture is open, during which nothing is given back")
    return OutOfMemoryError(
        "; ".join([*words, remedy]),
        requested=size,
        used=now.used_bytes,
        reserved=now.reserved_bytes,
        limit=pool.limit_bytes,
        largest_free=now.largest_free_bytes,
        provider=pool.provider.name,
    )
