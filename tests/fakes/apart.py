"""A provider without memory whose addresses and memory are managed apart."""

from __future__ import annotations

from collections.abc import Sequence

from tests.fakes.laddered import RUNGS, LadderedProvider
from umfpy import Capability, InvalidArgument, OutOfMemoryError

UNIT = 4096


class ApartProvider(LadderedProvider):
    """Keeps strictly to the contract; each unit of memory is a chunk of its own.

    Addresses are given out one behind the other, so that extents lie side by side.

    Parameters
    ----------
    memory
        Bytes that the device has; None for no end, of which it does not know.
    addresses
        The most bytes of addresses at once; None for no end.
    """

    name = "apart"

    def __init__(
        self, *, memory: int | None = None, addresses: int | None = None, streams: bool = True
    ) -> None:
        capabilities = Capability.SPLIT | RUNGS | Capability.RESERVE
        super().__init__(
            capabilities | (Capability.STREAMS if streams else Capability.NONE),
            unit=UNIT,
            chunk=UNIT,
            capacity=addresses,
        )
        self.memory_type = "device"
        self.memory = memory

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        missing = sum(unit in self.gone for unit in range(ptr, ptr + size, UNIT)) * UNIT
        if self.memory is not None and self.held + missing > self.memory:
            raise OutOfMemoryError(f"{missing} bytes are not left", requested=missing)
        if chunk_size is not None and (chunk_size < 1 or chunk_size % UNIT):
            raise InvalidArgument(f"the pool asked for chunks of {chunk_size} bytes")
        super().commit(ptr, size)

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        self._record("remap", sources, to, size)
        for ptr, length in (*sources, (to, size)):
            self._piece(ptr, length)
        if to in self.usable or any(unit not in self.gone for unit in self._units(to, size)):
            raise InvalidArgument(f"there is memory at {to:#x}")
        if any(unit in self.gone for source in sources for unit in self._units(*source)):
            raise InvalidArgument("a source has no memory")
        if sum(length for _, length in sources) != size:
            raise InvalidArgument(f"the sources do not make up {size} bytes")
        for source in sources:
            self.usable.remove(source[0])
            self.gone.update(self._units(*source))
        self.usable.add(to)
        self.gone.difference_update(self._units(to, size))

    def memory_info(self) -> tuple[int, int] | None:
        return None if self.memory is None else (self.memory - self.held, self.memory)
