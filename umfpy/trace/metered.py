"""A provider that counts what is taken from another one."""

from __future__ import annotations

from typing import Any

from umfpy.errors import OutOfMemoryError
from umfpy.provider import Location, NativeError, Provider
from umfpy.units import format_size


class Metered(Provider):
    """Passes everything on to `upstream`, and knows how much is held, now and at most.

    Parameters
    ----------
    upstream
        The provider that is measured.
    capacity
        The most bytes to hold at once; None for what upstream has.
    """

    name = "metered"

    def __init__(self, upstream: Provider, capacity: int | None = None) -> None:
        self.upstream = upstream
        self.capacity = capacity
        self.capabilities = upstream.capabilities
        self.memory_type = upstream.memory_type
        self.device = upstream.device
        self.granule = upstream.granule
        self.held_bytes = 0
        self.peak_bytes = 0
        self.allocs = 0  #: calls that succeeded
        self.frees = 0

    def alloc(self, size: int, alignment: int = 0) -> int:
        if self.capacity is not None and self.held_bytes + size > self.capacity:
            raise OutOfMemoryError(
                f"{format_size(size)} more would exceed the capacity of "
                f"{format_size(self.capacity)}; {format_size(self.held_bytes)} are held",
                requested=size,
                reserved=self.held_bytes,
                limit=self.capacity,
                provider=self.upstream.name,
            )
        ptr = self.upstream.alloc(size, alignment)
        self.allocs += 1
        self._hold(size)
        return ptr

    def free(self, ptr: int, size: int) -> None:
        self.upstream.free(ptr, size)
        self.frees += 1
        self.held_bytes -= size

    def commit(self, ptr: int, size: int) -> None:
        self.upstream.commit(ptr, size)
        self._hold(size)

    def decommit(self, ptr: int, size: int) -> None:
        self.upstream.decommit(ptr, size)
        self.held_bytes -= size

    def memory_info(self) -> tuple[int, int] | None:
        if self.capacity is None:
            return self.upstream.memory_info()
        return self.capacity - self.held_bytes, self.capacity

    def _hold(self, size: int) -> None:
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)

    # The rest changes nothing that is counted.

    def granularity(self, size: int = 0) -> int:
        return self.upstream.granularity(size)

    def recommended_granularity(self, size: int = 0) -> int:
        return self.upstream.recommended_granularity(size)

    def dalloc(self, ptr: int, size: int) -> None:
        self.upstream.dalloc(ptr, size)

    def purge_lazy(self, ptr: int, size: int) -> None:
        self.upstream.purge_lazy(ptr, size)

    def purge_force(self, ptr: int, size: int) -> None:
        self.upstream.purge_force(ptr, size)

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self.upstream.split(ptr, size, first_size)

    def merge(self, low: int, high: int, size: int) -> None:
        self.upstream.merge(low, high, size)

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        self.upstream.zero(ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        self.upstream.copy(dst, src, size, stream)

    def synchronize(self) -> None:
        self.upstream.synchronize()

    def ipc_export(self, ptr: int, size: int) -> bytes:
        return self.upstream.ipc_export(ptr, size)

    def ipc_open(self, payload: bytes, descriptors: Any = ()) -> int:
        return self.upstream.ipc_open(payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        self.upstream.ipc_close(ptr, size)

    def properties(self, ptr: int) -> dict[str, Any]:
        return self.upstream.properties(ptr)

    def native_error(self) -> NativeError | None:
        return self.upstream.native_error()

    def __repr__(self) -> str:
        return f"Metered({self.upstream!r})"
