"""The slabs of one size of cells: extents of a map whose every used block is one cell."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.core.pages import grant, start_of, take_span
from umfpy.errors import InvalidArgument, NotSupported, OutOfMemoryError, UmfpyError
from umfpy.pools import captures
from umfpy.pools.base import ProviderPool
from umfpy.pools.departure import departures_of
from umfpy.pools.growth import round_up
from umfpy.pools.release import take_extent
from umfpy.pools.slab_stats import BucketStats
from umfpy.pools.slab_waking import asleep, wake_one

if TYPE_CHECKING:
    from umfpy.core.cinterface import CInterface
    from umfpy.core.extents import Extent
    from umfpy.core.pool import Allocation, Stream
    from umfpy.pools.slab_holdings import SlabHoldings
    from umfpy.provider import Provider


class SlabBucket(ProviderPool):
    """A part of a `SlabPool`: the ``pool`` of its allocations.

    A cell comes and goes by the extent map: a request takes exactly one cell's bytes off the
    front of a free run, so that every block starts a whole number of cells into its slab.  What
    is left at a slab's end is smaller than a cell, and so is never taken.

    Attributes
    ----------
    cell
        Bytes of a cell.
    alignment
        What every cell is aligned to.
    """

    _lowers_whole = True  # what is left of a slab would not begin with a cell

    def __init__(
        self, holdings: SlabHoldings, provider: Provider, name: str, cell: int, alignment: int
    ) -> None:
        super().__init__(provider, name=name, zero=holdings.zero)
        self._growing = holdings.growing
        self.holdings = holdings
        self.cell = cell
        self.alignment = alignment

    # Requests, of at most a cell.

    def own(self, size: int, stream: int, zero: bool) -> Allocation:
        """Return an `Allocation` of a cell."""
        block = self._block(size, stream, index=False)
        allocation = grant(self, block, size, stream)
        if zero:
            self._clear_block(block, size, stream)
        return allocation

    def lend(self, size: int, stream: int, zero: bool) -> int:
        """Return the address of a cell, which `free` takes back."""
        block = self._block(size, stream, index=True)
        ptr = start_of(self, block)
        if zero:
            try:
                self._clear_block(block, size, stream)
            except BaseException:
                super().free(ptr)
                raise
        return ptr

    def free(
        self, ptr: int | None, size: SupportsIndex | None = None, stream: Stream = None
    ) -> None:
        """Free what the pool's `malloc` returned; as `Pool.free`."""
        super().free(ptr, size, stream)
        self.shed()

    def allocate(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> Allocation:
        """Ask the whole `SlabPool`; raises as that does, InvalidArgument once it is gone."""
        return self._whole().allocate(size, alignment, stream, zero)

    def malloc(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> int:
        """Ask the whole `SlabPool`; raises as that does, InvalidArgument once it is gone."""
        return self._whole().malloc(size, alignment, stream, zero)

    def c_interface(self) -> CInterface:
        """Refused: C callers would cut cells; the pool's own interface does not."""
        raise NotSupported(
            f"{self.name!r} has no functions for callers in C; use those of its SlabPool"
        )

    def _resized(self) -> None:
        self.holdings.totals.note()

    @property
    def manager(self) -> ProviderPool | None:
        """The `SlabPool` that the bucket is a part of, which `find` tells; None once it is gone."""
        return self.holdings.pool()

    def _whole(self) -> ProviderPool:
        pool = self.manager
        if pool is None:
            raise InvalidArgument(f"the pool of {self.name!r} is gone; make a new one")
        return pool

    def _block(self, size: int, stream: int, *, index: bool) -> int:
        self.shed()
        block = take_span(self, size, self.cell, stream, index)
        return self._take_or_grow(size, stream, index) if block is None else block

    def _take_or_grow(self, size: int, stream: int, index: bool) -> int:
        with self._growing:
            while True:
                block = take_span(self, size, self.cell, stream, index)
                if block is None and self._free_cells() > 0 and self._wait():
                    # What another stream freed is as good, once the device was waited for.
                    block = take_span(self, size, self.cell, stream, index)
                if block is not None:
                    return block
                with captures.growing(self.name, self.provider, size):
                    if not wake_one(self.map, self._cuts, self.holdings.admit):
                        self._grow()

    def _grow(self) -> None:
        """Add a slab; short of memory, one of a single cell.  Raises what the provider does."""
        unit = self.provider.granularity(self.holdings.sizes.slab)
        least = round_up(self.cell, unit)
        usual = self.holdings.sizes.slab_bytes(self.cell, unit)
        if usual > least:
            with contextlib.suppress(OutOfMemoryError):
                self._add_slab(usual)
                return
        self._add_slab(least)

    def _add_slab(self, size: int) -> None:
        self.holdings.admit(size)
        take_extent(self.map, self.provider, size, self.alignment)
        self._provider_allocs += 1

    # Slabs.

    def idle_slabs(self) -> list[Extent]:
        """Return the slabs without a used cell that have memory, and that every stream may use."""
        return self.map.free_extents(backed=True)

    def shed(self) -> None:
        """Give back the idle slabs beyond what may be kept; O(idle slabs).

        A slab that the provider does not take now is kept, and tried again with the next call:
        whoever freed a cell has freed it.
        """
        if not self._excess():
            return
        with self._shrinking() as may, contextlib.suppress(UmfpyError):
            if may:
                self._give_back(self._excess())

    def _excess(self) -> list[Extent]:
        idle = self.idle_slabs()
        if not idle:
            return idle
        over = max(len(idle) - self.holdings.capacity, 0)
        shared = self.holdings.shared
        if shared is not None:
            beyond = shared.idle_bytes - shared.limit_bytes
            beyond -= sum(slab.size for slab in idle[:over])
            while beyond > 0 and over < len(idle):
                beyond -= idle[over].size
                over += 1
        return idle[:over]

    def trim_slabs(self, keep: int) -> int:
        """Give back idle slabs but `keep`; return the bytes.  As `trim` otherwise."""
        with self._shrinking() as may:
            if not may:
                return 0
            self._join_streams()
            return self._give_back(self.idle_slabs()[keep:])

    def _give_back(self, slabs: Iterable[Extent]) -> int:
        """Take slabs out of the map if they are still idle, wait for the device, free them."""
        wanted = departures_of(slabs, self.map, self._cuts)
        return self._give_up([departure for departure in wanted if departure.leave()])

    # Questions.

    def _cells_in(self, slab: Extent) -> int:
        """Return the cells of a slab, by its own size: slabs need not be of one size."""
        mask = self.map.granule - 1
        low, high = slab.base + mask & ~mask, slab.base + slab.size & ~mask
        return (high - low) // self.cell

    def _free_cells(self) -> int:
        """Return how many cells are free, though maybe another stream's still."""
        slabs = sum(map(self._cells_in, list(self.map.extents.values())))
        down = sum(self._cells_in(slab) for slab, _ in asleep(self.map))
        return slabs - down - self.map.counters()["used"] // self.cell

    def describe(self) -> BucketStats:
        """Return what the bucket has; O(slabs)."""
        now = self.map.counters()
        slabs = list(self.map.extents.values())
        return BucketStats(
            cell_bytes=self.cell,
            alignment=self.alignment,
            slabs=len(slabs),
            idle_slabs=len(self.idle_slabs()),
            cells=sum(map(self._cells_in, slabs)),
            used_cells=now["used"] // self.cell,
            reserved_bytes=now["reserved"],
            requested_bytes=now["requested"],
            allocations=now["allocations"],
            frees=now["frees"],
            slab_allocs=self._provider_allocs,
            slab_frees=self._provider_frees,
        )

    def check(self, level: str = "full") -> None:
        """Check the extent map; ``"full"``: also that every used block is one cell in its place."""
        super().check(level)
        if level != "full":
            return
        slabs = sorted(self.map.extents.values(), key=lambda slab: slab.base, reverse=True)
        blocks = sorted(self.map.blocks())
        for start, span, used, _ in blocks:
            while slabs and not slabs[-1].base <= start < slabs[-1].base + slabs[-1].size:
                slabs.pop()
            if not used:
                continue
            mask = self.map.granule - 1
            place = start - (slabs[-1].base + mask & ~mask)
            if span != self.cell or place % self.cell or start % self.alignment:
                raise AssertionError(
                    f"broken invariant: the block of {span} bytes at {start:#x} is no cell of "
                    f"{self.cell} bytes"
                )
