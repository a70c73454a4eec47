"""A provider without memory that has every rung, and keeps strictly to the contract."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.provider import FakeProvider
from umfpy import Capability, InvalidArgument
from umfpy.core.extents import COMING, HIDDEN, LEAVING, SAFE, UNBACKED
from umfpy.pools.base import ProviderPool
from umfpy.provider import ChunkInfo

RUNGS = Capability.DALLOC | Capability.PURGE | Capability.COMMIT


class LadderedProvider(FakeProvider):
    """Pieces that are usable or not; what is no whole piece, or in the wrong state, is refused.

    `live` has the bytes of each piece, `usable` those that are, and `gone` every unit without
    memory.  With RESERVE, memory comes in chunks of `chunk` bytes, inside of which there is no cut.
    """

    name = "laddered"

    def __init__(
        self,
        capabilities: Capability = Capability.SPLIT | RUNGS | Capability.STREAMS,
        *,
        unit: int = 4096,
        chunk: int = 16384,
        **options: object,
    ) -> None:
        super().__init__(
            capabilities=capabilities, unit=unit, granule=512, memory_type="host", **options
        )
        self.chunk = chunk
        self.usable: set[int] = set()
        self.gone: set[int] = set()
        self.kept = 0  # what `trim` gives back

    @property
    def held(self) -> int:
        """Bytes that have memory."""
        return self.live_bytes - len(self.gone) * self.unit

    def state(self, address: int) -> int:
        """What the map calls the state of an address."""
        ptr = next(ptr for ptr, size in self.live.items() if ptr <= address < ptr + size)
        if ptr in self.usable:
            return SAFE
        return UNBACKED if address // self.unit * self.unit in self.gone else HIDDEN

    def alloc(self, size: int, alignment: int = 0) -> int:
        ptr = super().alloc(size, max(alignment, self.chunk))
        self.usable.add(ptr)
        return ptr

    def free(self, ptr: int, size: int) -> None:
        super().free(ptr, size)
        self.usable.discard(ptr)
        self.gone.difference_update(self._units(ptr, size))

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self._record("split", ptr, size, first_size)
        self._piece(ptr, size)
        at = ptr + first_size
        chunks = Capability.RESERVE in self.capabilities and at not in self.gone
        if not ptr < at < ptr + size or at % (self.chunk if chunks else self.unit):
            raise InvalidArgument(f"{size} bytes cannot be cut after {first_size}")
        self.live[ptr] = first_size
        self.live[at] = size - first_size
        if ptr in self.usable:
            self.usable.add(at)

    def merge(self, low: int, high: int, size: int) -> None:
        self._record("merge", low, high, size)
        self._piece(low, high - low)
        self._piece(high, size - (high - low))
        if (low in self.usable) != (high in self.usable):
            raise InvalidArgument("one is usable, and the other is not")
        del self.live[high]
        self.usable.discard(high)
        self.live[low] = size

    def dalloc(self, ptr: int, size: int) -> None:
        self._use("dalloc", ptr, size)
        self.usable.remove(ptr)

    def decommit(self, ptr: int, size: int) -> None:
        self._record("decommit", ptr, size)
        self._piece(ptr, size)
        self.usable.discard(ptr)
        self.gone.update(self._units(ptr, size))

    def purge_lazy(self, ptr: int, size: int) -> None:
        self._use("purge_lazy", ptr, size)

    def purge_force(self, ptr: int, size: int) -> None:
        self._use("purge_force", ptr, size)

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        if (not clear or chunk_size) and Capability.RESERVE not in self.capabilities:
            raise TypeError("commit() takes keywords only where there is RESERVE")
        self._record("commit", ptr, size)
        self._piece(ptr, size)
        self.usable.add(ptr)
        self.gone.difference_update(self._units(ptr, size))

    def reserve(self, size: int, alignment: int = 0) -> int:
        ptr = self.alloc(size, alignment)
        self.usable.remove(ptr)
        self.gone.update(self._units(ptr, size))
        return ptr

    def chunks(self, ptr: int, size: int) -> Sequence[ChunkInfo]:
        assert (ptr | size) % self.unit == 0, "whole units"
        first = -(-ptr // self.chunk) * self.chunk
        return [
            ChunkInfo(at, self.chunk)
            for at in range(first, ptr + size - self.chunk + 1, self.chunk)
            if at not in self.gone
        ]

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        raise InvalidArgument("this fake takes no memory elsewhere")

    def trim(self, keep_bytes: int = 0) -> int:
        self._record("trim", keep_bytes)
        went, self.kept = max(self.kept - keep_bytes, 0), min(self.kept, keep_bytes)
        return went

    def _units(self, ptr: int, size: int) -> range:
        return range(ptr, ptr + size, self.unit)

    def _piece(self, ptr: int, size: int) -> None:
        if self.live.get(ptr) != size:
            raise InvalidArgument(f"no piece of {size} bytes at {ptr:#x}")

    def _use(self, call: str, ptr: int, size: int) -> None:
        self._record(call, ptr, size)
        self._piece(ptr, size)
        if ptr not in self.usable:
            raise InvalidArgument(f"{call} of a piece that is not usable")


def agree(pool: ProviderPool, provider: LadderedProvider) -> None:
    """Raise unless pool and provider are of one opinion about every byte."""
    pool.check("full")
    known = {
        start: size
        for extent in pool.map.extents.values()
        for start, size in pool._cuts.pieces(extent)
    }
    assert known == provider.live, "the pieces are those of the provider"
    for start, span, used, tag in pool.map.blocks():
        assert tag not in (LEAVING, COMING), "nobody is at it any more"
        wanted = tag if tag in (HIDDEN, UNBACKED) and not used else SAFE
        for at in (start, *range(-(-start // 4096) * 4096, start + span, 4096)):
            assert provider.state(at) == wanted, f"{at:#x} is in the state of its block"
    now = pool.stats()
    assert now.reserved_bytes == provider.held
    assert now.reserved_bytes + now.unbacked_bytes == provider.live_bytes


def end(pool: ProviderPool, provider: LadderedProvider) -> None:
    """Free what is live, close the pool, and see that everything is back."""
    agree(pool, provider)
    for start, _, used, _ in pool.map.blocks():
        if used:
            pool.free(start)
    pool.close()
    agree(pool, provider)
    assert not provider.live


def states(pool: ProviderPool) -> list[tuple[int, int]]:
    """Return (KiB, state) of each free block, by address."""
    return [(span >> 10, tag) for _, span, used, tag in pool.map.blocks() if not used]
