"""Whose memory a pool has, and which other pools have memory of the same source."""

from __future__ import annotations

from collections.abc import Iterable

from umfpy.core.pool import live_pools
from umfpy.pools.base import ProviderPool
from umfpy.provider import Provider


def source_of(provider: Provider) -> tuple[str, int, str]:
    """Return what a provider hands out memory of: driver, device and kind."""
    return provider.driver or provider.name, provider.device, provider.memory_type


def neighbours(provider: Provider, own: Iterable[object] = ()) -> list[ProviderPool]:
    """Return the open pools that hold memory of the provider's source, but for those of `own`.

    What they give back may be what is missing.  O(pools of the process).
    """
    source = source_of(provider)
    passed_by = {id(pool) for pool in own}
    return [
        pool
        for pool in live_pools()
        if id(pool) not in passed_by
        and isinstance(pool, ProviderPool)
        and source_of(pool.provider) == source
        and not pool.closed
    ]
