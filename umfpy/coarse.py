"""A provider that sub-allocates another one."""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence

from umfpy.core.extents import Extent, ExtentMap, innermost
from umfpy.core.pool import next_serial
from umfpy.errors import InvalidArgument, IpcError, OutOfMemoryError
from umfpy.pools.growth import round_up
from umfpy.pools.lock import GrowthLock
from umfpy.pools.nested import Layered, as_provider
from umfpy.pools.release import give_back
from umfpy.provider import Capability, Provider
from umfpy.units import format_size, parse_size

#: How each strategy searches: how many blocks of the request's own bin are compared before a
#: larger one is taken in which everything fits.
_SCAN = {"fastest": 0, "fastest_but_one": 1, "check_all_size": 0xFFFFFFFF}


class CoarseProvider(Layered):
    """Cuts an upstream provider's memory into pieces, and joins them again.

    Split and merge are logical: what came from upstream stays whole, so that an upstream that
    can do neither, as CUDA and Level Zero, serves as well as one that can.  Memory goes back to
    it with `close` or `trim`, a whole upstream allocation at a time.

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
        if strategy not in _SCAN:
            raise InvalidArgument(
                f"strategy must be one of {', '.join(map(repr, _SCAN))}, not {strategy!r}"
            )
        super().__init__(as_provider(upstream))
        self.capabilities |= self.upstream.capabilities & Capability.IPC
        self.map = ExtentMap(self.granule, self, scan=_SCAN[strategy])
        self.serial = next_serial()
        self._growing = GrowthLock()
        #: What `ipc_open` returned: upstream's base and size, once for each open.
        self._opened: dict[int, list[tuple[int, int]]] = {}
        if size := parse_size(reserve):
            self._grow(size, 0)

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return `size` bytes: a piece of what is there, else of a new upstream allocation.

        Upstream is asked for `size` in whole units of its granularity; its errors pass through.
        """
        self._refuse_if_closed()
        ptr = self.map.allocate(size, alignment) if size < 1 << 63 else None
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
        if ptr:
            self.map.free(ptr, size)

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self.map.split(ptr, size, first_size)

    def merge(self, low: int, high: int, size: int) -> None:
        self.map.merge(low, high, size)

    def granularity(self, size: int = 0) -> int:
        return self.granule

    def add(self, ptr: int, size: int) -> None:
        """Take over memory that upstream gave to the caller; `close` gives it to upstream."""
        self.map.add(ptr, size, self.upstream)

    def trim(self) -> int:
        """Give the upstream allocations that are wholly free back; return their bytes."""
        if self.map.foreign:
            return 0
        with self._growing:
            return sum(extent.size for extent in self.map.free_extents() if give_back(extent))

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

    def stats(self) -> dict[str, int]:
        """Return the counters of the extent map: bytes, or how often."""
        return self.map.counters()

    def check(self, level: str = "full") -> None:
        """Check the invariants of the extent map: ``"off"``, ``"cheap"`` or ``"full"``."""
        self.map.check(level)

    # IPC: the export of the upstream allocation, and where the piece lies in it.

    _OFFSET = struct.Struct("<QQQ")  # upstream's base and size, offset of the piece

    def ipc_export(self, ptr: int, size: int) -> bytes:
        extent = self._extent_at(ptr)
        payload = self.upstream.ipc_export(extent.base, extent.size)
        return self._OFFSET.pack(extent.base, extent.size, ptr - extent.base) + payload

    def ipc_release(self, payload: bytes) -> None:
        self.upstream.ipc_release(payload[self._OFFSET.size :])

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        return self.upstream.ipc_descriptors(payload[self._OFFSET.size :])

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        if len(payload) < self._OFFSET.size:
            raise IpcError(f"{len(payload)} bytes are no export of a coarse provider")
        _, size, offset = self._OFFSET.unpack_from(payload)
        if offset >= size:
            raise IpcError(f"an export of {size} bytes cannot have a piece at {offset}")
        base = self.upstream.ipc_open(payload[self._OFFSET.size :], descriptors)
        with self._growing:
            self._opened.setdefault(base + offset, []).append((base, size))
        ptr: int = base + offset
        return ptr

    def ipc_close(self, ptr: int, size: int) -> None:
        with self._growing:
            opened = self._opened.get(ptr)
            if not opened:
                raise InvalidArgument(f"{ptr:#x} was not opened by this provider")
            self.upstream.ipc_close(*opened[-1])
            opened.pop()
            if not opened:
                del self._opened[ptr]

    def _extent_at(self, ptr: int) -> Extent:
        extent = innermost(ptr)
        while extent is not None and extent.map is not self.map:
            extent = extent.parent
        if extent is None:
            raise InvalidArgument(f"{ptr:#x} is no memory of this provider")
        return extent

    def _grow(self, size: int, alignment: int) -> None:
        padded = round_up(size, self.upstream.granularity(size))
        if padded >= 1 << 63:
            raise OutOfMemoryError(
                f"no device has {format_size(size)} ({size} bytes)", requested=size
            )
        base = self.upstream.alloc(padded, alignment if alignment > self.granule else 0)
        try:
            self.map.add(base, padded, self.upstream)
        except BaseException:
            self.upstream.free(base, padded)
            raise

    def _refuse_if_closed(self) -> None:
        if self.map.closed:
            raise InvalidArgument(
                "this coarse provider is closed, or belongs to the process that forked this one; "
                "make a new one"
            )

    def __repr__(self) -> str:
        return f"CoarseProvider({self.upstream!r})"
