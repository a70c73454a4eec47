"""A provider that counts what is taken from another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from umfpy.provider import Capability, ChunkInfo, Location, NativeError, Provider
from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.range_set import RangeSet
from umfpy.trace.holding import Holding

T = TypeVar("T")


class Metered(Provider):
    """Passes everything on to `upstream`, and knows how much is held, now and at most.

    Held is what is taken from the device: what is behind addresses, and what upstream keeps for
    reuse.  Addresses alone cost nothing.  An upstream with chunks says itself what is behind
    them; of another one, all that was not decommitted is.

    Parameters
    ----------
    upstream
        The provider that is measured; the caller's to close.
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
        self.driver = upstream.driver or upstream.name
        self.granule = upstream.granule
        self.allocs = 0  #: calls that took memory, and succeeded
        self.frees = 0  #: calls that gave some back
        self._holding = Holding(upstream, capacity)
        self._has_chunks = Capability.RESERVE in upstream.capabilities
        self._lock = threading.Lock()
        self._decommitted = RangeSet()  # of an upstream without chunks

    @property
    def held_bytes(self) -> int:
        """Bytes held now."""
        return self._holding.now

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were held at once."""
        return self._holding.peak

    @property
    def kept_bytes(self) -> int:
        """Bytes of those held that upstream keeps for reuse, behind no address."""
        return self._holding.kept

    # What takes memory and gives it back.

    def alloc(self, size: int, alignment: int = 0) -> int:
        ptr = self._taking(
            self._length(size),
            lambda: self.upstream.alloc(size, alignment),
            lambda ptr: self._behind(ptr, size),
        )
        self.allocs += 1
        return ptr

    def reserve(self, size: int, alignment: int = 0) -> int:
        return self.upstream.reserve(size, alignment)

    def free(self, ptr: int, size: int) -> None:
        behind = self._behind(ptr, size)
        # Before the addresses can be somebody else's.
        with self._lock:
            marks = self._decommitted.discard(ptr, ptr + size)
        try:
            self.upstream.free(ptr, size)
        except BaseException:
            with self._lock:
                for mark in marks:
                    self._decommitted.add(*mark)
            raise
        self.frees += 1
        self._holding.settle(0, -behind)

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        before = self._behind(ptr, size)

        def commit() -> None:
            if not self._has_chunks:
                self.upstream.commit(ptr, size)
                with self._lock:
                    self._decommitted.discard(ptr, ptr + size)
            else:
                self.upstream.commit(ptr, size, clear=clear, chunk_size=chunk_size)

        more = max(self._length(size) - before, 0)
        self._taking(more, commit, lambda _: self._behind(ptr, size) - before)
        self.allocs += more > 0

    def decommit(self, ptr: int, size: int) -> None:
        before = self._behind(ptr, size)
        self.upstream.decommit(ptr, size)
        self.frees += before > 0
        if not self._has_chunks:
            with self._lock:
                self._decommitted.add(ptr, ptr + size)
        self._holding.settle(0, self._behind(ptr, size) - before)

    def extend(self, ptr: int, size: int, more: int) -> bool:
        """Let a piece grow in place, where upstream can; False if it cannot, nothing changed."""
        extend = getattr(self.upstream, "extend", None)
        if extend is None:
            return False
        before = self._behind(ptr, size)
        return self._taking(
            self._length(size + more) - before,
            lambda: bool(extend(ptr, size, more)),
            lambda grown: self._behind(ptr, size + more) - before if grown else 0,
        )

    def trim(self, keep_bytes: int = 0) -> int:
        """Have upstream give back what it keeps, beyond `keep_bytes`; return how much went."""
        return self._holding.trim(keep_bytes)

    def memory_info(self) -> tuple[int, int] | None:
        if self.capacity is None:
            return self.upstream.memory_info()
        return max(self.capacity - self.held_bytes, 0), self.capacity

    def _taking(self, most: int, call: Callable[[], T], count: Callable[[T], int]) -> T:
        """Make a call that takes at most so many bytes; `count` tells how many it has taken."""
        self._holding.claim(most)
        taken = 0
        try:
            result = call()
            taken = count(result)
        finally:
            self._holding.settle(most, taken)
        return result

    def _behind(self, ptr: int, size: int) -> int:
        """Return how many bytes of memory there are behind a range."""
        if self._has_chunks:
            return sum(chunk.size for chunk in self.upstream.chunks(ptr, self._length(size)))
        with self._lock:
            return size - self._decommitted.covered(ptr, ptr + size)

    def _length(self, size: int) -> int:
        """Return the bytes of memory that it takes to back `size`."""
        if not self._has_chunks:
            return size
        return round_up(size, self.upstream.granularity(size))

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

    def chunks(self, ptr: int, size: int) -> Sequence[ChunkInfo]:
        return self.upstream.chunks(ptr, size)

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        self.upstream.remap(sources, to, size)

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

    def ipc_range(self, ptr: int, size: int, root: tuple[int, int]) -> tuple[int, int]:
        return self.upstream.ipc_range(ptr, size, root)

    def ipc_export(self, ptr: int, size: int) -> bytes:
        return self.upstream.ipc_export(ptr, size)

    def ipc_release(self, payload: bytes) -> None:
        self.upstream.ipc_release(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        return self.upstream.ipc_descriptors(payload)

    def ipc_size(self, payload: bytes) -> int | None:
        return self.upstream.ipc_size(payload)

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        return self.upstream.ipc_open(payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        self.upstream.ipc_close(ptr, size)

    def ipc_scope(self) -> str:
        return self.upstream.ipc_scope()

    def properties(self, ptr: int) -> dict[str, Any]:
        return self.upstream.properties(ptr)

    def buffer(self, ptr: int, size: int) -> Any:
        return self.upstream.buffer(ptr, size)

    def native_error(self) -> NativeError | None:
        return self.upstream.native_error()

    def __repr__(self) -> str:
        return f"Metered({self.upstream!r})"
