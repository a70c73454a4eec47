"""Pools that a manager holds memory in."""

from __future__ import annotations

import weakref

from umfpy.core.cinterface import CInterface
from umfpy.errors import NotSupported
from umfpy.manager.holdings import Holdings
from umfpy.pools.base import ProviderPool
from umfpy.provider import Provider


class HeldPool(ProviderPool):
    """A pool that belongs to a manager, and serves it alone."""

    def __init__(
        self,
        holdings: Holdings,
        source: Provider | ProviderPool,
        *,
        name: str,
        direct: bool = False,
    ) -> None:
        super().__init__(source, name=name, direct=direct)
        # The other way round is a strong reference: slices keep pools, and no cycle a manager.
        self._holdings = weakref.ref(holdings)

    def holdings(self) -> Holdings | None:
        """Return the manager's holdings; None once it is gone."""
        return self._holdings()

    def _resized(self) -> None:
        holdings = self._holdings()
        if holdings is not None:
            holdings.totals.note()

    @property
    def manager(self) -> ProviderPool | None:
        """The `MemoryManager` that the pool belongs to; None once it is gone."""
        holdings = self._holdings()
        return None if holdings is None else holdings.manager()

    def c_interface(self) -> CInterface:
        """Refused: callers in C would cut pages that belong to one slice, or pass captures by."""
        raise NotSupported(
            f"pool {self.name!r} serves its manager alone; give a umfpy.Pool to callers in C"
        )
