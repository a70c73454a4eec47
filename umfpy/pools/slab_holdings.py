"""What the buckets of one pool share: its lock, its limits, and what they hold together."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from umfpy.core.pages import Totals
from umfpy.errors import OutOfMemoryError
from umfpy.pools.lock import GrowthLock
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.pools.slab import SlabPool
    from umfpy.pools.slab_limit import SharedLimit
    from umfpy.pools.slab_sizes import SlabSizes


class SlabHoldings:
    """The part of a `SlabPool` that its buckets need, and that lives as long as any of them.

    Attributes
    ----------
    sizes
        Of cells and slabs.
    capacity
        How many idle slabs a bucket keeps.
    shared
        What bounds the idle slabs of several pools, or None.
    zero
        Whether every allocation reads as zero.
    growing
        The lock around the provider's calls, the same for all buckets.
    totals
        Sums over the buckets' extent maps.
    """

    def __init__(
        self,
        pool: SlabPool,
        sizes: SlabSizes,
        *,
        capacity: int,
        shared: SharedLimit | None,
        zero: bool,
    ) -> None:
        self.sizes = sizes
        self.capacity = capacity
        self.shared = shared
        self.zero = zero
        self.growing = GrowthLock()
        self.totals = Totals()
        # The other way round is a strong reference: allocations keep buckets, and no cycle a pool.
        self._pool = weakref.ref(pool)

    def pool(self) -> SlabPool | None:
        """Return the pool; None once it is gone."""
        return self._pool()

    def admit(self, size: int) -> None:
        """Raise OutOfMemoryError if `size` bytes more are beyond the pool's limit.

        The caller holds `growing` until they are in a map.
        """
        pool = self._pool()
        limit = None if pool is None else pool.limit_bytes
        held = self.totals.reserved
        if limit is not None and held + size > limit:
            raise OutOfMemoryError(
                f"{format_size(size)} more than the {format_size(held)} held are beyond the limit "
                f"of {format_size(limit)}",
                requested=size,
                reserved=held,
                limit=limit,
            )
