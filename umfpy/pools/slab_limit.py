"""A limit on what several pools of slabs keep idle together."""

from __future__ import annotations

import threading
import weakref
from typing import TYPE_CHECKING

from umfpy.units import format_size, parse_size

if TYPE_CHECKING:
    from umfpy.pools.slab import SlabPool


class SharedLimit:
    """Caps what several pools keep in idle slabs together.

    What is idle is read off the pools' extent maps whenever it matters and counted nowhere
    else, so that no way of giving memory back can leave it wrong.

    Parameters
    ----------
    limit_bytes
        The most bytes in idle slabs, as a number or text; may be changed at any time, and holds
        from the next free or request on.

    Examples
    --------
    >>> limit = SharedLimit("16MiB")
    >>> limit.limit_bytes, limit.idle_bytes
    (16777216, 0)
    """

    def __init__(self, limit_bytes: int | str) -> None:
        self.limit_bytes = limit_bytes
        self._joining = threading.Lock()
        #: Replaced, never changed: it is read without the lock.
        self._pools: tuple[weakref.ref[SlabPool], ...] = ()

    @property
    def limit_bytes(self) -> int:
        """The most bytes in idle slabs."""
        return self._limit

    @limit_bytes.setter
    def limit_bytes(self, limit: int | str) -> None:
        self._limit = parse_size(limit)

    def join(self, pool: SlabPool) -> None:
        """Have a pool's idle slabs count; `SlabPool` does so by itself."""
        with self._joining:
            alive = [known for known in self._pools if known() is not None]
            self._pools = (*alive, weakref.ref(pool))

    @property
    def idle_bytes(self) -> int:
        """Bytes in idle slabs now; O(buckets of all pools + idle slabs)."""
        pools = [known() for known in self._pools]
        return sum(pool.idle_bytes for pool in pools if pool is not None)

    def __repr__(self) -> str:
        return (
            f"SharedLimit({format_size(self.idle_bytes)} idle of {format_size(self.limit_bytes)})"
        )
