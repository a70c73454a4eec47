"""A provider without memory: it counts, records, and fails when it is told to."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable

from umfpy import Capability, InvalidArgument, OutOfMemoryError, Provider

#: Each provider serves addresses of its own, as the drivers of one process do.
_ARENAS = itertools.count(1)
_ARENA = 1 << 42


class FakeFailure(Exception):
    """What a fake raises where a driver would answer with an error of its own."""


class FakeProvider(Provider):
    """Simulated addresses, each given out once at a time, lowest first among those freed.

    `capacity` bounds the bytes that live at once.  `fail` makes the nth call from now raise.
    `calls` holds every call with its arguments, `live` what was not freed yet.
    """

    name = "fake"

    def __init__(
        self,
        *,
        granule: int = 512,
        unit: int | None = None,
        capacity: int | None = None,
        capabilities: Capability = Capability.NONE,
        device: int = 0,
        memory_type: str = "device",
        offset: int = 0,
    ) -> None:
        self.granule = granule
        self.unit = unit or granule
        self.capacity = capacity
        self.capabilities = capabilities
        self.device = device
        self.memory_type = memory_type
        self.offset = offset  # of every address, to spoil its alignment
        self.live: dict[int, int] = {}
        self.calls: list[tuple[object, ...]] = []
        self.counts: Counter[str] = Counter()
        self.on_synchronize: Callable[[], None] | None = None
        self._next = next(_ARENAS) * _ARENA
        self._freed: dict[int, list[int]] = {}
        self._failures: list[tuple[int, BaseException]] = []

    # Control.

    def fail(self, nth: int = 1, error: BaseException | None = None) -> None:
        """Make the nth call from now raise, once."""
        self._failures.append((len(self.calls) + nth, error or FakeFailure("as told")))

    def recover(self) -> None:
        """Forget every failure that has not happened yet."""
        self._failures.clear()

    @property
    def live_bytes(self) -> int:
        return sum(self.live.values())

    # The contract.

    def alloc(self, size: int, alignment: int = 0) -> int:
        self._record("alloc", size, alignment)
        if size < 1 or alignment & (alignment - 1):
            raise InvalidArgument(f"the pool asked for {size} bytes aligned to {alignment}")
        if self.capacity is not None and self.live_bytes + size > self.capacity:
            raise OutOfMemoryError(f"{size} bytes are beyond {self.capacity}", requested=size)
        if size >= _ARENA:
            raise OutOfMemoryError(f"{size} bytes are beyond the arena", requested=size)
        ptr = self._reuse(size, max(alignment, self.granule, 1))
        self.live[ptr] = size
        return ptr

    def free(self, ptr: int, size: int) -> None:
        self._record("free", ptr, size)
        if self.live.get(ptr) != size:
            raise InvalidArgument(f"no {size} bytes live at {ptr:#x}")
        del self.live[ptr]
        self._freed.setdefault(size, []).append(ptr)

    def granularity(self, size: int = 0) -> int:
        return self.unit

    def split(self, ptr: int, size: int, first_size: int) -> None:
        self._record("split", ptr, size, first_size)

    def merge(self, low: int, high: int, size: int) -> None:
        self._record("merge", low, high, size)

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        self._record("zero", ptr, size, stream)

    def copy(self, *arguments: object) -> None:
        self._record("copy", *arguments)

    def synchronize(self) -> None:
        self._record("synchronize")
        if self.on_synchronize is not None:
            self.on_synchronize()

    def memory_info(self) -> tuple[int, int] | None:
        if self.capacity is None:
            return None
        return self.capacity - self.live_bytes, self.capacity

    def __repr__(self) -> str:
        return f"FakeProvider(granule={self.granule})"

    def _record(self, call: str, *arguments: object) -> None:
        self.calls.append((call, *arguments))
        self.counts[call] += 1
        for failure in self._failures:
            if failure[0] == len(self.calls):
                self._failures.remove(failure)
                raise failure[1]

    def _reuse(self, size: int, boundary: int) -> int:
        """An address that was freed, or the next one that never was given out."""
        for ptr in sorted(self._freed.get(size, ())):
            if (ptr - self.offset) % boundary == 0:
                self._freed[size].remove(ptr)
                return ptr
        ptr = -(-self._next // boundary) * boundary + self.offset
        self._next = ptr + size
        return ptr
