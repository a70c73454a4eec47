"""Memory without handles, taken while a capture is open."""

from __future__ import annotations

import ctypes
import sys
import weakref

from umfpy.core.pages import set_unit, stream_number
from umfpy.core.pool import Allocation
from umfpy.manager.held import HeldPool
from umfpy.manager.holdings import Holdings
from umfpy.manager.persistent import PersistentPool
from umfpy.manager.pins import Pins
from umfpy.manager.serving import Server
from umfpy.pools.freeing import StreamPassingPool
from umfpy.pools.rungs import Trimmed, check_rung


class WindowPool(HeldPool, StreamPassingPool):
    """Gives out slices of persistent memory that a captured graph may hold as well.

    Its user can free an allocation at any time, while a pin keeps the slice below: so each
    allocation is an extent of its own, nested in its slice.
    """

    def __init__(
        self,
        holdings: Holdings,
        persistent: PersistentPool,
        pins: Pins,
        server: Server,
        name: str,
    ) -> None:
        super().__init__(holdings, persistent, name=name, direct=True)
        set_unit(self, persistent.map.granule)
        self._pins = pins
        self._server = server
        self._slices: dict[int, Allocation] = {}  # by extent

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        slice_ = self._server.allocate(size, alignment, stream, False)
        granule = self.map.granule
        block: int = self.map.add_used(
            slice_.ptr,
            -(-size // granule) * granule or granule,
            size,
            self.provider,
            stream,
            index=index,
        )
        self._slices[self.map.extent_of(block).index] = slice_
        self._pins.touch(slice_, weakref.ref(slice_))
        return block

    def _discard(self, block: int, generation: int) -> None:
        extent = self.map.detach(block, generation)
        slice_ = self._slices.pop(extent.index)
        stream = self._freeing.stream
        if stream is not None and not self._pins.hold(slice_):
            slice_.free(stream_number(stream))
        # Else it goes with the last reference, which may be a pin's.
        del slice_
        self.map.drop(extent, block)

    def __del__(self) -> None:
        super().__del__()
        if self._made and self._slices and not sys.is_finalizing():
            # What was got as an address and never freed may be in use: it stays, as does what
            # any pool gave out, for the rest of the process.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._slices))

    def close(self) -> None:
        """Give nothing more out; the manager reports what lives."""
        self.map.shut()

    def trim(self, keep_bytes: int | str = 0, *, rung: str = "free") -> Trimmed:
        """Return 0: nothing here is idle."""
        check_rung(rung)
        return Trimmed()

    def synchronize(self) -> None:
        """Do nothing: what is freed here leaves at once, and is ordered by the pool below."""
