"""The cells that callers in C were given."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umfpy.pools.base import ProviderPool
from umfpy.pools.freeing import StreamPassingPool
from umfpy.pools.growth import round_up

if TYPE_CHECKING:
    from umfpy.core.extents import Extent
    from umfpy.core.pool import Stream
    from umfpy.pools.slab import SlabPool

#: The "stream" of memory that C callers have recorded on several; see `umfpy/core/cinterface`.
_SEVERAL = 0xFFFFFFFFFFFFFFFE


class CallersPool(StreamPassingPool):
    """A pool over a `SlabPool`, in whose one extent map the C functions find what they gave.

    Every allocation is an extent, nested in its cell.  It is given back to the stream that the
    caller says, or that it was allocated on.
    """

    def __init__(self, slabs: SlabPool) -> None:
        super().__init__(slabs, name=f"{slabs.name}/c")
        self._slabs = slabs

    @property
    def manager(self) -> ProviderPool:
        """The `SlabPool`, which `find` tells."""
        return self._slabs

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        ptr = self._slabs.malloc(size, alignment, stream)
        try:
            padded = round_up(size, self.map.granule)
            block: int = self.map.add_used(ptr, padded, size, self.provider, stream, index=index)
        except BaseException:
            self._slabs.free(ptr)
            raise
        self._provider_allocs += 1
        return block

    def _discard(self, block: int, generation: int) -> None:
        extent = self.map.detach(block, generation)
        try:
            self._slabs.free(extent.base, None, self._stream_of(extent))
        except BaseException:
            self.map.attach(extent)
            raise
        self.map.drop(extent, block)
        self._provider_frees += 1

    def _stream_of(self, extent: Extent) -> Stream:
        """Return the stream after whose work the memory is free."""
        known = self.map.describe_in(extent, extent.base)
        recorded = None if known is None else known["stream"]
        said = self._freeing.stream
        return recorded if said is None or recorded == _SEVERAL else said
