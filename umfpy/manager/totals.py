"""The numbers of several pools as those of one."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.core.pages import Totals
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.pools.stats import PoolStats

_SUMS = (
    "requested_bytes",
    "used_bytes",
    "reserved_bytes",
    "metadata_bytes",
    "live_allocations",
    "allocations",
    "frees",
    "extents",
    "provider_allocs",
    "provider_frees",
    "hidden_bytes",
    "unbacked_bytes",
)


def manager_usage(pools: Sequence[PoolUsage], totals: Totals) -> MemoryUsage:
    """Return the sums over the pools, and the peaks of these sums."""
    return MemoryUsage(
        number_allocs=sum(pool.usage.number_allocs for pool in pools),
        bytes_in_use=sum(pool.usage.bytes_in_use for pool in pools),
        bytes_padding=sum(pool.usage.bytes_padding for pool in pools),
        bytes_reserved=sum(pool.usage.bytes_reserved for pool in pools),
        peak_number_allocs=totals.peak_live,
        peak_bytes_in_use=totals.peak_requested,
        peak_bytes_reserved=totals.peak_reserved,
        bytes_hidden=sum(pool.usage.bytes_hidden for pool in pools),
        bytes_unbacked=sum(pool.usage.bytes_unbacked for pool in pools),
    )


def manager_stats(pools: Sequence[PoolStats], totals: Totals) -> PoolStats:
    """Return the sums over the pools, and the peaks of these sums."""
    return PoolStats(
        peak_requested_bytes=totals.peak_requested,
        peak_used_bytes=totals.peak_used,
        peak_reserved_bytes=totals.peak_reserved,
        largest_free_bytes=max((pool.largest_free_bytes for pool in pools), default=0),
        **{name: sum(getattr(pool, name) for pool in pools) for name in _SUMS},
    )
