"""Where a pool gets memory whose provider keeps addresses and memory apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from umfpy.core.extents import SAFE
from umfpy.errors import OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.growth import round_up
from umfpy.pools.spare import divide, spare_chunks
from umfpy.pools.supply import Supply

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap
    from umfpy.pools.cuts import CutExtents
    from umfpy.pools.virtual_growth import VirtualGrowth
    from umfpy.pools.window import Window
    from umfpy.provider import ChunkInfo, Provider

#: Times the memory of the device that is reserved at once: addresses cost nothing, and the more
#: there are the longer what is free stays in one piece.
_SPANS = 2

#: What is reserved at once where the device does not say how much memory it has: more comes when
#: it is used up, and the look-up by address has its table for all of it.
_SPAN = 1 << 38


class Part(NamedTuple):
    """Addresses that get memory: free chunks from elsewhere first, then new bytes."""

    start: int
    chunks: list[ChunkInfo]
    new: int

    @property
    def new_start(self) -> int:
        """Where the new bytes begin."""
        return self.start + sum(chunk.size for chunk in self.chunks)


class VirtualSupply(Supply):
    """Puts memory behind reserved addresses: free memory from elsewhere before any of the device's.

    Nothing that is live ever moves.
    """

    def __init__(
        self,
        name: str,
        space: ExtentMap,
        provider: Provider,
        cuts: CutExtents,
        growth: VirtualGrowth,
    ) -> None:
        super().__init__(name, space, provider, cuts)
        self._growth = growth
        info = provider.memory_info()
        self._total = info[1] if info else None
        self._span = round_up(info[1] * _SPANS if info else _SPAN, self._unit)

    def _without_window(self, size: int, alignment: int) -> bool:
        """Enter an extent of addresses without memory."""
        least = round_up(size + max(alignment, self._unit), self._unit)
        for length in dict.fromkeys((max(self._span, least), least)):
            try:
                base = self._provider.reserve(length, self._unit)
            except OutOfMemoryError:
                continue
            self._enter(base, length)
            return True
        return False

    def _enter(self, base: int, length: int) -> None:
        try:
            extent = self._map.add(base, length, self._provider, backed=False)
        except BaseException:
            self._provider.free(base, length)
            raise
        self._cuts.enter(extent, usable=False)
        self.entered += 1

    # Filling a window.

    def _fill(self, window: Window, limit: int | None) -> bool:
        parts = list(self._plan(window))
        new = sum(part.new for part in parts)
        # New memory first: if there is none, nothing has moved.
        while not (self._admits(new, limit) and self._take(window, parts, new, limit)):
            if not self._give_up(window, parts):
                return False
        for part in parts:
            # Lost to another thread or not: the caller looks again.
            if part.chunks and not self._backing.move(part.chunks, part.start):
                break
        return True

    def _plan(self, window: Window) -> Iterator[Part]:
        """Say of what each part of a window without memory is to be made."""
        spare = self._spare(window)
        for missing in window.without_memory:
            chunks, spare = divide(spare, missing.size)
            yield Part(missing.start, chunks, missing.size - sum(chunk.size for chunk in chunks))

    def _give_up(self, window: Window, parts: Sequence[Part]) -> bool:
        """Have a spare chunk go that is too large for any part, and come again as smaller ones.

        The smallest, and one at a time.  False if there is none.
        """
        planned = {chunk.ptr for part in parts for chunk in part.chunks}
        left = (chunk for chunk in reversed(self._spare(window)) if chunk.ptr not in planned)
        return any(map(self._backing.drop, left))

    def _spare(self, window: Window) -> list[ChunkInfo]:
        if captures.is_frozen(self._provider):  # to move a chunk the device is waited for
            return []
        return spare_chunks(self._provider, self._map.free_ranges(SAFE, self._unit), window)

    def _take(self, window: Window, parts: list[Part], new: int, limit: int | None) -> bool:
        """Put new memory behind the parts: a whole step if there is one, else what is needed."""
        if not new:
            return True
        extra = self._extra(window, parts, new, limit)
        chunk_size = self._chunk_size(window, new + extra)
        for more in dict.fromkeys((extra, 0)):
            try:
                return self._take_all(parts, more, chunk_size)
            except OutOfMemoryError:
                continue
        return False

    def _extra(self, window: Window, parts: list[Part], new: int, limit: int | None) -> int:
        """Return how many bytes to take beyond what is needed, behind the last part."""
        last = parts[-1]
        if any(part.chunks for part in parts) or window.missing[-1].start != last.start:
            return 0  # what lay idle was not enough by little, or used memory lies behind
        held = self._map.counters()["reserved"]
        extra = min(self._growth.step(held) - new, window.room)
        if limit is not None:
            extra = min(extra, limit - held - new)
        return max(extra, 0) // self._unit * self._unit

    def _chunk_size(self, window: Window, new: int) -> int:
        now = self._map.counters()
        free = now["reserved"] - now["used"] - now["hidden"]
        useful = window.end - window.start - window.new_bytes
        idle = max(free - useful, 0)
        return self._growth.chunk_size(new, now["reserved"], idle, self._total, self._unit)

    def _take_all(self, parts: list[Part], extra: int, chunk_size: int) -> bool:
        for part in parts:
            more = part.new + extra * (part is parts[-1])
            # Lost to another thread or not: the caller looks again.
            if more and not self._backing.back(part.new_start, more, chunk_size):
                break
        return True
