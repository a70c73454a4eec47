"""What a pool of slabs knows of itself, in exact bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from umfpy.core.pages import Totals
from umfpy.pools.stats import PoolStats


@dataclass(frozen=True)
class BucketStats:
    """One size of cells, and the slabs that are cut into them.

    A slab is idle if none of its cells is used, and every stream may use all of it.
    """

    cell_bytes: int  #: the size
    alignment: int  #: what every cell is aligned to
    slabs: int = 0  #: held from the provider
    idle_slabs: int = 0  #: of these
    cells: int = 0  #: in all slabs
    used_cells: int = 0  #: live allocations
    reserved_bytes: int = 0  #: of the slabs
    requested_bytes: int = 0  #: asked for by live allocations
    allocations: int = 0  #: ever
    frees: int = 0  #: ever
    slab_allocs: int = 0  #: slabs ever taken from the provider
    slab_frees: int = 0  #: slabs ever given back

    @property
    def free_cells(self) -> int:
        """Cells that wait for a request."""
        return self.cells - self.used_cells


def pool_stats(parts: Sequence[PoolStats], totals: Totals) -> PoolStats:
    """Return the statistics of several extent maps as those of one pool."""
    totals.note()

    def total(name: str) -> int:
        return sum(getattr(part, name) for part in parts)

    return PoolStats(
        requested_bytes=total("requested_bytes"),
        used_bytes=total("used_bytes"),
        reserved_bytes=total("reserved_bytes"),
        peak_requested_bytes=totals.peak_requested,
        peak_used_bytes=totals.peak_used,
        peak_reserved_bytes=totals.peak_reserved,
        largest_free_bytes=max((part.largest_free_bytes for part in parts), default=0),
        metadata_bytes=total("metadata_bytes"),
        live_allocations=total("live_allocations"),
        allocations=total("allocations"),
        frees=total("frees"),
        extents=total("extents"),
        provider_allocs=total("provider_allocs"),
        provider_frees=total("provider_frees"),
        hidden_bytes=total("hidden_bytes"),
        unbacked_bytes=total("unbacked_bytes"),
    )
