"""A provider that sub-allocates another one."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from umfpy import leaving
from umfpy.arguments import check_choice, check_number
from umfpy.core.extents import Extent, ExtentMap, innermost
from umfpy.core.pool import next_serial
from umfpy.errors import InvalidArgument, OutOfMemoryError, UmfpyError
from umfpy.pools.growth import round_up
from umfpy.pools.lock import GrowthLock
from umfpy.pools.nested import Layered, as_provider
from umfpy.pools.pieces import PieceIpc
from umfpy.pools.release import give_back, take_extent
from umfpy.provider import Capability, Provider
from umfpy.units import format_size, parse_size

#: How each strategy searches: how many blocks of the request's own bin are compared before a
#: larger one is taken in which everything fits.
_SCAN = {"fastest": 0, "fastest_but_one": 1, "check_all_size": 0xFFFFFFFF}


class CoarseProvider(Layered):
    """Cuts an upstream provider's memory into pieces, and joins them again.

    Split and merge are logical: what came from upstream stays whole, so that an upstream that
    can do neither, as CUDA and Level Zero, serves as well as one that can.  Memory goes back to
    it with `close` or `trim`, or as the provider is dropped, a whole upstream allocation at a
    time.

    Parameters
    ----------
    upstream
        A provider or a pool; None for memory that `add` brings alone.
    strategy
        ``"fastest"`` takes the first block of a size at which every block fits;
        ``"fastest_but_one"`` (the default) looks at one block of the request's own size range
        first; ``"check_all_size"`` compares that whole range for the closest fit.  Before it
        turns to upstream every strategy finds whatever fits.
    reserve
        Bytes to take from upstream at once, as a number or text.
    """

    name = "coarse"

    def __init__(
        self,
        upstream: Provider,
        *,
        strategy: str = "fastest_but_one",
        reserve: int | str = 0,
    ) -> None:
        check_choice(strategy, _SCAN, "strategy")
        super().__init__(as_provider(upstream))
        self.capabilities |= self.upstream.capabilities & Capability.IPC
        self.map = ExtentMap(self.granule, self, scan=_SCAN[strategy])
        self.serial = next_serial()
        self._growing = GrowthLock()
        self._ipc = PieceIpc(self.upstream)
        if size := parse_size(reserve):
            self._grow(size, 0)
        leaving.enter(self, lambda coarse: coarse.trim())

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return `size` bytes: a piece of what is there, else of a new upstream allocation.

        Upstream is asked for `size` in whole units of its granularity; its errors pass through.
        """
        self._refuse_if_closed()
        ptr = self.map.allocate(size, alignment)
        if ptr is not None:
            return ptr
        with self._growing:
            while (ptr := self.map.allocate(size, alignment)) is None:
                self._grow(size, alignment)
            return ptr

    def free(self, ptr: int, size: int | None = None) -> None:
        """Take a piece back, and join it with its free neighbours.

        0 and None are fine.  An address that is not the start of a live piece, or a `size` other
        than the piece's, is InvalidArgument, with nothing changed.
        """
        if self.map.foreign:
            self._refuse_if_closed()
        if ptr is not None and ptr != 0:
            self.map.free(ptr, size)

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self.map.split(ptr, size, first_size)

    def merge(self, low: int, high: int, size: int) -> None:
        self.map.merge(low, high, size)

    def granularity(self, size: int = 0) -> int:
        return self.granule

    def add(self, ptr: int, size: int) -> None:
        """Take over memory that upstream gave to the caller; `close` gives it to upstream."""
        ptr, size = check_number(ptr, "ptr", least=1), check_number(size, "size", least=1)
        self.map.add(ptr, size, self.upstream)

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give the upstream allocations that are wholly free back; return their bytes.

        While at least `keep_bytes`, in bytes or as text, stay held.
        """
        keep = parse_size(keep_bytes)
        if self.map.foreign:
            return 0
        with self._growing:
            return sum(
                extent.size
                for extent in self.map.free_extents()
                if self._may_go(extent, keep) and give_back(extent)
            )

    def close(self) -> None:
        """Give everything back that is free; a ResourceWarning reports live pieces."""
        if self.map.closed:
            return
        self.trim()
        self.map.shut()
        counters = self.map.counters()
        live = counters["allocations"] - counters["frees"]
        if live:
            warnings.warn(
                f"a coarse provider was closed with {live} live pieces of "
                f"{counters['requested']} bytes; {counters['reserved']} bytes stay held for them",
                ResourceWarning,
                stacklevel=2,
            )

    def __del__(self) -> None:
        # At interpreter exit the driver may be gone already; the system takes the memory back.
        if sys.is_finalizing() or not hasattr(self, "_ipc"):
            return
        try:
            self.trim()
        except UmfpyError as error:
            warnings.warn(
                f"a dropped coarse provider could not give its memory back: {error}",
                ResourceWarning,
                stacklevel=2,
            )

    def stats(self) -> dict[str, int]:
        """Return the counters of the extent map: bytes, or how often."""
        return self.map.counters()

    def check(self, level: str = "full") -> None:
        """Check the invariants of the extent map: ``"off"``, ``"cheap"`` or ``"full"``."""
        self.map.check(level)

    def live_count(self) -> int:
        """Return how many pieces are live."""
        counters = self.map.counters()
        return int(counters["allocations"] - counters["frees"])

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Export a live piece: upstream's export, and where the piece lies in it."""
        self._need_ipc()
        known = self.map.describe(ptr)
        extent = innermost(ptr)
        while extent is not None and extent.map is not self.map:
            extent = extent.parent
        if known is None or extent is None or (known["base"], known["size"]) != (ptr, size):
            raise InvalidArgument(f"{size} bytes at {ptr:#x} are no live piece of this provider")
        return self._ipc.export(extent.base, extent.size, ptr - extent.base)

    def ipc_release(self, payload: bytes) -> None:
        self._ipc.release(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        return self._ipc.descriptors(payload)

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        self._need_ipc()
        return self._ipc.open(payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        self._need_ipc()
        self._ipc.close(ptr)

    def _need_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise self._lacks(Capability.IPC)

    def _grow(self, size: int, alignment: int) -> None:
        padded = round_up(size, self.upstream.granularity(size))
        if padded >= 1 << 63:
            raise OutOfMemoryError(
                f"no device has {format_size(size)} ({size} bytes)", requested=size
            )
        take_extent(self.map, self.upstream, padded, alignment)

    def _may_go(self, extent: Extent, keep: int) -> bool:
        return keep == 0 or self.map.counters()["reserved"] - extent.size >= keep

    def _refuse_if_closed(self) -> None:
        if self.map.closed:
            raise InvalidArgument(
                "this coarse provider is closed, or belongs to the process that forked this one; "
                "make a new one"
            )

    def __repr__(self) -> str:
        return f"CoarseProvider({self.upstream!r})"
