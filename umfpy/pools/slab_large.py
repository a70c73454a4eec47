"""Requests that no cell is large enough for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umfpy.pools.growth import round_up
from umfpy.pools.proxy import ProxyPool

if TYPE_CHECKING:
    from umfpy.pools.base import ProviderPool
    from umfpy.pools.slab_holdings import SlabHoldings
    from umfpy.provider import Provider


class LargePool(ProxyPool):
    """Passes what is above the largest cell to the provider, within the limit of the `SlabPool`."""

    def __init__(self, holdings: SlabHoldings, provider: Provider, name: str) -> None:
        super().__init__(provider, name=name, zero=holdings.zero)
        self._growing = holdings.growing
        self.holdings = holdings

    def _resized(self) -> None:
        self.holdings.totals.note()

    @property
    def manager(self) -> ProviderPool | None:
        """The `SlabPool` that this is a part of, which `find` tells; None once it is gone."""
        return self.holdings.pool()

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        with self._growing:
            self.holdings.admit(round_up(size, self.provider.granule))
            return super()._obtain(size, alignment, stream, index)
