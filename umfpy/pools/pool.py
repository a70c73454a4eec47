"""The default pool."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from umfpy.arguments import check_flag
from umfpy.core.extents import SAFE
from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.base import ProviderPool
from umfpy.pools.callbacks import Callbacks, OutOfMemoryCallback
from umfpy.pools.growth import Growth, round_up
from umfpy.pools.idle import Idle
from umfpy.pools.nested import as_provider
from umfpy.pools.release import take_extent
from umfpy.pools.rungs import brought_back
from umfpy.pools.shortage import ask_neighbours, can_ever_hold, out_of_memory
from umfpy.pools.stats import PoolStats
from umfpy.pools.supply import Supply
from umfpy.pools.virtual import VirtualSupply
from umfpy.pools.virtual_growth import VirtualGrowth
from umfpy.provider import Capability, Provider
from umfpy.units import format_size

#: What it takes to manage addresses and memory apart.
_APART = Capability.RESERVE | Capability.SPLIT | Capability.COMMIT


class Pool(ProviderPool):
    """Sub-allocates a provider's memory with an extent map; the pool to use by default.

    Memory freed on a stream is used again on that stream at once, and on others after the pool
    has waited for the device: never before.  Extents are kept until `trim`, `close`, or memory
    runs out.

    Parameters
    ----------
    provider
        Where memory comes from: a `Provider`, or another pool.
    name
        For people; made from the provider's if not given.
    zero
        Whether every allocation reads as zero.
    limit_bytes
        The most to hold from the provider, as bytes or text; None for no limit.  ``"64MiB"`` and
        ``"64M"`` are 64 · 2^20 bytes, ``"64MB"`` is 64 · 10^6.
    growth
        How much to take at a time: a `Growth`, or a `VirtualGrowth` for virtual memory.
    virtual
        Whether the pool manages addresses and memory apart, over a provider that can
        (`Capability.RESERVE`): memory in which nothing is used goes to where it is needed before
        any is asked of the device, and nothing live moves.  None: as `growth` says, or if it is
        memory of a device.
    idle
        When memory that nobody needed goes down a rung by itself; None for never.
    """

    elastic = True

    def __init__(
        self,
        provider: Provider | ProviderPool,
        *,
        name: str | None = None,
        zero: bool = False,
        limit_bytes: int | str | None = None,
        growth: Growth | VirtualGrowth | None = None,
        virtual: bool | None = None,
        idle: Idle | None = None,
    ) -> None:
        source = as_provider(provider)
        steps = _choose_growth(source, growth, virtual)
        super().__init__(
            source,
            name=name,
            zero=zero,
            limit_bytes=limit_bytes,
            low_from=1 if isinstance(steps, VirtualGrowth) else 0,
            idle=idle,
        )
        self._growth: Growth | None = None
        if isinstance(steps, VirtualGrowth):
            self._supply: Supply = VirtualSupply(self.name, self.map, source, self._cuts, steps)
        else:
            self._growth = steps
            self._supply = Supply(self.name, self.map, source, self._cuts)
        self._callbacks = Callbacks()

    @property
    def virtual(self) -> bool:
        """Whether the pool manages addresses and memory apart."""
        return self._growth is None

    def stats(self) -> PoolStats:
        now = super().stats()
        return replace(now, provider_allocs=now.provider_allocs + self._supply.entered)

    def on_out_of_memory(self, callback: OutOfMemoryCallback) -> None:
        """Have `callback(missing_bytes)` asked before OutOfMemoryError is raised.

        It frees what it can and returns True to have the request tried again, else False.  It is
        called in the thread that allocates, without a lock of this pool; a pool that stands on this
        one grows meanwhile, and has other threads wait.  What it asks of this pool itself asks no
        callback again, and raises OutOfMemoryError where there is nothing.  Several are asked in
        the order in which they came; none can be taken back.
        """
        self._callbacks.add(callback)

    # What happens when nothing that fits is free.  `index`: the block is to be found by address.

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        self._idle_tick()
        if can_ever_hold(self.provider, self.limit_bytes, size):
            block = self._take_or_grow(size, alignment, stream, index)
            if block is not None:
                return block
            # Pools ask each other for memory, so that none may wait for another while holding
            # its own lock: it is let go before anybody is asked.
            for reclaim in self._reclaimers(size):
                if reclaim():
                    block = self._take_or_grow(size, alignment, stream, index)
                    if block is not None:
                        return block
        raise self._out_of_memory(size)

    def _take_or_grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        """Return a used block, with new memory if need be; None if there is no more.

        Without the lock of the map another thread may take what this one fetched: then it is
        fetched again.
        """
        waited = False
        with self._growing:
            while True:
                block = self._try_take(size, alignment, stream, index)
                if block is not None:
                    return block
                if not waited and self._waiting_may_help(size) and self._wait():
                    waited = True
                elif not self._supplied(size, alignment) and not self._grow(size, alignment):
                    return None

    def _supplied(self, size: int, alignment: int) -> bool:
        """Whether free memory that was not usable is by now."""
        now = self.map.counters()
        asleep = self.virtual or now["hidden"] or now["unbacked"]
        return bool(asleep) and self._supply.supply(size, alignment, self.limit_bytes)

    def _extend(self, end: int, missing: int, stream: int) -> bool:
        with self._growing:
            return self._supply.extend(end, missing, self.limit_bytes)

    def _waiting_may_help(self, size: int) -> bool:
        """Whether streams hold back what could serve a request, or have an extent go back.

        Where addresses and memory are one, growing is cheaper than to wait for the device, unless
        extents lie idle.
        """
        if not self.virtual:
            return bool(self.map.free_extents(backed=True))
        if self.map.streams < 2:
            return False
        now = self.map.counters()
        safe = sum(size for _, size in self.map.free_ranges(SAFE))
        return now["reserved"] - now["used"] - now["hidden"] - safe >= size

    def _grow(self, size: int, alignment: int) -> bool:
        """Add an extent that holds the request; False if the provider has none.

        Wholly free ones, none of which holds it, go back first, to come again as one.  During a
        capture they stay, and CaptureWouldBreak is raised where it forbids new ones.
        """
        if self._growth is None:
            return False
        released = self._release_idle() if self.map.free_extents() else 0
        unit = self.provider.granularity(size)
        reserved = self.map.counters()["reserved"]
        step = self._growth.step(size, reserved + released, released, unit)
        least = round_up(round_up(size, self.map.granule), unit)
        if self.limit_bytes is not None:
            step = min(step, (self.limit_bytes - reserved) // unit * unit)
        with captures.growing(self.name, self.provider, size):
            # Short of memory, take what the request needs and no more.
            return any(
                step >= least and self._add_extent(step, alignment)
                for step in dict.fromkeys((step, least))
                if self.limit_bytes is None or reserved + step <= self.limit_bytes
            )

    def _release_idle(self) -> int:
        with self._shrinking() as may:
            return self._release_free(0) if may else 0

    def _add_extent(self, size: int, alignment: int) -> bool:
        try:
            take_extent(self.map, self.provider, size, max(alignment, self.map.granule))
        except OutOfMemoryError:
            return False
        self._provider_allocs += 1
        return True

    # Running out of memory.

    def _reclaimers(self, size: int) -> Iterator[Callable[[], bool]]:
        """What may bring memory back, the cheapest first; each says whether it did."""
        yield self._wait_for_streams
        yield lambda: brought_back(self._trim(wait=True))
        yield from ask_neighbours(self.provider, (self,))
        yield from self._callbacks.asked(size)

    def _wait_for_streams(self) -> bool:
        return Capability.STREAMS in self.provider.capabilities and self._wait()

    def _out_of_memory(self, size: int) -> OutOfMemoryError:
        now = self.stats()
        held = (
            f" in {now.extents} extents, largest free block {format_size(now.largest_free_bytes)}"
        )
        remedy = "free or drop allocations"
        if now.free_bytes >= size:
            remedy += "; enough is free in all, but not in one piece"
        return out_of_memory(self, now, size, held=held, remedy=remedy)


def _choose_growth(
    provider: Provider, growth: Growth | VirtualGrowth | None, virtual: bool | None
) -> Growth | VirtualGrowth:
    """Return how a pool over `provider` grows: apart from its addresses, or with them."""
    if virtual is not None:
        check_flag(virtual, "virtual")
    able = _APART in provider.capabilities
    if virtual is None and growth is not None:
        virtual = able and isinstance(growth, VirtualGrowth)
    elif virtual is None:
        virtual = able and provider.memory_type == "device"
    if virtual and not able:
        raise InvalidArgument(
            "virtual=True needs a provider with RESERVE, SPLIT and COMMIT, such as "
            f"CudaVmmProvider; {provider!r} has {provider.capabilities}"
        )
    wanted = VirtualGrowth if virtual else Growth
    if growth is None:
        return wanted()
    if not isinstance(growth, wanted):
        raise InvalidArgument(
            f"growth must be a {wanted.__name__} with virtual={virtual}, not {growth!r}"
        )
    return growth
