"""A pool that keeps nothing: every request goes to the provider."""

from __future__ import annotations

from dataclasses import replace

from umfpy.core.pages import free_block
from umfpy.errors import OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.base import ProviderPool
from umfpy.pools.growth import round_up
from umfpy.pools.release import gives_zeros, withdraw_export
from umfpy.pools.stats import PoolStats
from umfpy.provider import Capability, Provider
from umfpy.units import format_size


class ProxyPool(ProviderPool):
    """Passes each request on to its provider, and each free as well.

    Its allocations are tracked, found and shared as those of every pool are.  It is the pool to
    put on a `CoarseProvider`, or on a driver that pools by itself.  What is freed during a capture
    on the device goes back once that is over.

    Parameters
    ----------
    provider, name, zero, limit_bytes
        As of `Pool`.
    """

    def __init__(
        self,
        provider: Provider | ProviderPool,
        *,
        name: str | None = None,
        zero: bool = False,
        limit_bytes: int | str | None = None,
    ) -> None:
        super().__init__(provider, name=name, zero=zero, limit_bytes=limit_bytes, direct=True)

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        padded = round_up(size, self.provider.granule)
        limit = self.limit_bytes
        with self._growing:
            reserved = self.map.counters()["reserved"]
            if padded >= 1 << 63 or (limit is not None and reserved + padded > limit):
                raise OutOfMemoryError(
                    f"pool {self.name!r} cannot hold {format_size(size)} ({size} bytes) more: it "
                    f"holds {format_size(reserved)}, its limit is {limit}",
                    requested=size,
                    used=reserved,
                    reserved=reserved,
                    limit=limit,
                    provider=self.provider.name,
                )
            with captures.growing(self.name, self.provider, size):
                base = self.provider.alloc(padded, alignment)
            try:
                block: int = self.map.add_used(
                    base,
                    padded,
                    size,
                    self.provider,
                    stream,
                    index=index,
                    fresh=gives_zeros(self.provider),
                )
            except BaseException:
                self.provider.free(base, padded)
                raise
            self._provider_allocs += 1
            return block

    def _discard(self, block: int, generation: int) -> None:
        with captures.shrinking(self.provider) as may:
            if may:
                self._pass_back(block, generation)
                return
        free_block(self, block, generation)  # it goes once the capture is over
        captures.after(self, self._drain)

    def _pass_back(self, block: int, generation: int) -> None:
        # Without the lock: a destructor may get here in a thread that is growing another pool.
        # Only one thread gets the extent.
        extent = self.map.detach(block, generation)
        try:
            # A provider knows no streams: memory that goes back may be anybody's next.
            if Capability.STREAMS in self.provider.capabilities:
                self.provider.synchronize()
            withdraw_export(extent)
            self.provider.free(extent.base, extent.size)
        except BaseException:
            self.map.attach(extent)
            raise
        self.map.drop(extent, block)

    def stats(self) -> PoolStats:
        now = super().stats()
        return replace(now, provider_frees=now.allocations - now.extents)
