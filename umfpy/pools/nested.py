"""A pool as the provider of another pool: any depth works."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from umfpy.core.pool import BasePool
from umfpy.pools import captures
from umfpy.provider import Capability, Location, Provider, check_provider_usable

if TYPE_CHECKING:
    from umfpy.provider import NativeError

#: What belongs to the memory itself, and so holds for any piece of it.
CONTENTS = Capability.ZERO | Capability.COPY | Capability.STREAMS | Capability.HOST_ACCESS


class Layered(Provider):
    """What a provider that cuts up another one's memory passes through to it."""

    def __init__(self, upstream: Provider) -> None:
        self.upstream = upstream
        self.memory_type = upstream.memory_type
        self.device = upstream.device
        self.driver = upstream.driver or upstream.name
        self.granule = upstream.granule
        self.capabilities = (upstream.capabilities & CONTENTS) | Capability.SPLIT

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        self.upstream.zero(ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        self.upstream.copy(dst, src, size, stream)

    def synchronize(self) -> None:
        self.upstream.synchronize()

    def properties(self, ptr: int) -> dict[str, Any]:
        return self.upstream.properties(ptr)

    def buffer(self, ptr: int, size: int) -> Any:
        return self.upstream.buffer(ptr, size)

    def memory_info(self) -> tuple[int, int] | None:
        return self.upstream.memory_info()

    def native_error(self) -> NativeError | None:
        return self.upstream.native_error()


class PoolProvider(Layered):
    """A pool's memory as a provider: `alloc` is `Pool.malloc`, `free` is `Pool.free`.

    ``umfpy.Pool(pool)`` makes one by itself.
    """

    name = "pool"

    def __init__(self, pool: BasePool) -> None:
        super().__init__(pool.provider)
        self.pool = pool
        if not pool.splits:
            self.capabilities &= ~Capability.SPLIT

    def alloc(self, size: int, alignment: int = 0) -> int:
        captures.refuse_waiting(self.pool.name, self.upstream)
        ptr: int = self.pool.malloc(size, alignment)
        if Capability.STREAMS in self.capabilities:
            # It is ready for one stream, but whoever asked will use it on any.
            try:
                with captures.waiting(self.pool.name, self.upstream):
                    self.upstream.synchronize()
            except BaseException:
                self.pool.free(ptr, size)
                raise
        return ptr

    def free(self, ptr: int, size: int) -> None:
        self.pool.free(ptr, size)

    def granularity(self, size: int = 0) -> int:
        return self.granule

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self._need_split()
        self.pool.map.split(ptr, size, first_size)

    def merge(self, low: int, high: int, size: int) -> None:
        self._need_split()
        self.pool.map.merge(low, high, size)

    def _need_split(self) -> None:
        if Capability.SPLIT not in self.capabilities:
            raise self._lacks(Capability.SPLIT)

    def __repr__(self) -> str:
        return f"PoolProvider({self.pool.name!r})"


def as_provider(source: object) -> Provider:
    """Return `source` as a provider: it is one, or a pool.

    Raises InvalidArgument for anything else, and for a provider that lacks what it announces.
    """
    if isinstance(source, BasePool):
        return PoolProvider(source)
    return check_provider_usable(source)
