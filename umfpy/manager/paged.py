"""What the pools of a layout share: how pages come, and the end."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import TypeVar

from umfpy.core.extents import Extent
from umfpy.core.pages import set_unit
from umfpy.errors import InvalidArgument
from umfpy.manager.aging import AgingPool
from umfpy.manager.asleep import any_asleep, idle_pages
from umfpy.manager.holdings import Holdings
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.sleepers import Choice, Sleepers
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.manager.waking import Waking
from umfpy.pools import captures
from umfpy.pools.departure import Departure
from umfpy.pools.release import gives_zeros
from umfpy.pools.shortage import MOST

T = TypeVar("T")


class PagedPool(AgingPool):
    """A policy over an extent map whose extents are pages, and whose blocks are slices.

    A subclass says which sizes it takes, which block serves a request, and what page comes where
    none does.

    Attributes
    ----------
    kind
        What reports call it.
    """

    kind = ""

    def __init__(
        self,
        holdings: Holdings,
        properties: MemoryProperties,
        name: str,
        period: int | None = None,
    ) -> None:
        super().__init__(holdings, name, period)
        set_unit(self, properties.granule)
        self.unit = properties.alignment
        self._properties = properties
        self._sleepers = Sleepers(self.map)
        self._waking = Waking(self.map, self.provider, self._cuts)

    @abstractmethod
    def intervals(self) -> Sequence[tuple[int, int]]:
        """Return the sizes that the pool takes, as ranges that include both ends."""

    @abstractmethod
    def padding_bytes(self) -> int:
        """Return by how many bytes live slices were rounded up to the alignment."""

    @abstractmethod
    def page_bytes(self, size: int) -> int:
        """Return the bytes of a new page for a request of `size` bytes."""

    @abstractmethod
    def _choose_asleep(self, size: int, alignment: int) -> Choice | None:
        """Return what has to wake so that a request can be served; None if nothing would do."""

    @abstractmethod
    def _grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        """Return a block of a new page; None if there is no more memory."""

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        """Return a block of a page that is there; None if nothing that fits is free."""
        return self._try_take(size, alignment, stream, index)

    # Where nothing that fits is free.  `index`: the block is to be found by address.

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        """Return a block; what `Pool.allocate` calls where it finds none."""
        block = self._take_or_grow(size, alignment, stream, index)
        holdings = self.holdings()
        if block is None and holdings is not None and holdings.reclaim(size):
            block = self._take_or_grow(size, alignment, stream, index)
        if block is None:
            raise self._out_of_memory(size)
        return block

    def _take_or_grow(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        with self._growing:
            block = self._take_any(size, alignment, stream, index)
            if block is None:
                block = self._take_woken(size, alignment, stream, index)
            return self._grow(size, alignment, stream, index) if block is None else block

    def _take_any(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        """Take what another stream freed as well: it is as good, once the device was waited for."""
        block = self._take(size, alignment, stream, index)
        if block is None and self.map.streams > 1 and self._wait():
            block = self._take(size, alignment, stream, index)
        return block

    def _take_woken(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        """Take what sleeps, once it is awake; None if nothing of use does, or memory is short."""
        holdings = self.holdings()
        while holdings is not None and (choice := self._asleep_for(size, alignment)):
            with captures.growing(self.name, self.provider, size):
                awake = self._wake(choice, holdings)
            if not awake:
                return None
            # Taking needs no lock of this pool: another thread may be quicker.
            block = self._take_any(size, alignment, stream, index)
            if block is not None:
                return block
        return None

    def _asleep_for(self, size: int, alignment: int) -> Choice | None:
        return self._choose_asleep(size, alignment) if any_asleep(self.map) else None

    def _wake(self, choice: Choice, holdings: Holdings) -> bool:
        """Wake what was chosen; False if memory is short."""
        awake = False
        try:
            awake = self._waking.wake(choice.parts, holdings)
        finally:
            if awake:
                self._sleepers.woke(choice)
            else:
                self._sleepers.forget()
        return awake

    def _descend(self, rung: str, keep: int) -> int:
        self._sleepers.forget()
        return super()._descend(rung, keep)

    def _give_up(self, leaving: list[Departure]) -> int:
        if any(going.ready < going.extent.size for going in leaving):
            self._sleepers.forget()
        return super()._give_up(leaving)

    def _out_of_memory(self, size: int) -> Exception:
        holdings = self.holdings()
        if holdings is None:
            return InvalidArgument(f"the manager of pool {self.name!r} is gone; make a new one")
        return holdings.out_of_memory(size, self)

    # New pages.

    def _fetch(self, size: int, alignment: int, enter: Callable[[int], T]) -> T | None:
        holdings = self.holdings()
        if holdings is None or size >= MOST:
            return None
        # A page begins with a granule of the map, which may be larger than the provider's.
        boundary = max(alignment, self.map.granule)
        return holdings.fetch(size, boundary if boundary > self.provider.granule else 0, enter)

    def _enter_free(self, size: int, base: int) -> Extent:
        """Take a new page over as free memory."""
        extent = self.map.add(base, size, self.provider, fresh=gives_zeros(self.provider))
        self._note_page(extent)
        return extent

    def _enter_used(self, size: int, requested: int, stream: int, index: bool, base: int) -> int:
        """Take a new page over as one slice, and return its block."""
        block = self.map.add_used(
            base,
            size,
            requested,
            self.provider,
            stream,
            index=index,
            fresh=gives_zeros(self.provider),
        )
        self._note_page(self.map.extent_of(block))
        return block

    # The end.

    def retire(self) -> None:
        """Give nothing more out; what is free goes back now, and each page with its last slice.

        During a capture all that goes back once it is over.
        """
        if not self.map.foreign:
            self._end()

    def close(self) -> None:
        """Give everything back; a pool that was retired and holds nothing has nothing to do."""
        if not self.closed or self.map.extents:
            super().close()

    # Questions.

    def usage(self) -> PoolUsage:
        """Return what the pool has; O(pages), and what `idle_pages` says."""
        ready, asleep = idle_pages(self.map)
        now = self.map.counters()
        live = now["allocations"] - now["frees"]
        holdings = self.holdings()
        return PoolUsage(
            name=self.name,
            kind=self.kind,
            pages=now["extents"],
            idle_pages=len(ready),
            asleep_pages=len(asleep),
            usage=MemoryUsage(
                number_allocs=live,
                bytes_in_use=now["requested"],
                bytes_padding=self.padding_bytes(),
                bytes_reserved=now["reserved"],
                peak_number_allocs=holdings.totals.peak_live_of(self.map) if holdings else live,
                peak_bytes_in_use=now["peak_requested"],
                peak_bytes_reserved=now["peak_reserved"],
                bytes_hidden=now["hidden"],
                bytes_unbacked=now["unbacked"],
            ),
        )
