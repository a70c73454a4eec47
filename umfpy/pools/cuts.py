"""Where a provider's pieces begin and end inside an extent."""

from __future__ import annotations

import bisect
from typing import TYPE_CHECKING

from umfpy.core.extents import innermost

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap
    from umfpy.provider import Provider


class Cuts:
    """The pieces of one extent, as its provider knows them.

    What a provider does to a part of its memory, it does to a whole piece.  So the part is cut
    out first, and joined with its neighbours of the same state afterwards, so that there are
    never more pieces than changes of state.  Every step is recorded as it is done: a provider
    that fails on the way leaves a cut more than is needed, and nothing else.

    Not safe for threads: callers hold the pool's growth lock.
    """

    def __init__(self, extent: Extent, *, usable: bool = True) -> None:
        self._provider: Provider = extent.provider
        self._starts = [extent.base]
        self._end = extent.base + extent.size
        self._usable = {extent.base: usable}

    def pieces(self) -> list[tuple[int, int]]:
        """Return (start, bytes) of all pieces, by address."""
        ends = [*self._starts[1:], self._end]
        return [(start, end - start) for start, end in zip(self._starts, ends, strict=True)]

    @property
    def whole(self) -> bool:
        """Whether the extent is one piece that may be used, as it came."""
        return len(self._starts) == 1 and self._usable[self._starts[0]]

    def isolate(self, start: int, size: int) -> None:
        """Make a range a piece of its own; all of it is in one state.

        Raises what the provider's `split` does, and its `merge` where that had failed before.
        """
        for at in (start, start + size):
            self._cut(at)
        first = bisect.bisect_right(self._starts, start)
        last = bisect.bisect_left(self._starts, start + size)
        for at in self._starts[first:last]:
            self._join(at)

    def note(self, start: int, *, usable: bool) -> None:
        """Note that an isolated piece has changed its state."""
        self._usable[start] = usable

    def join(self, start: int, size: int) -> None:
        """Join a piece with its neighbours of the same state.

        Raises what the provider's `merge` does.
        """
        self._join(start + size)
        self._join(start)

    def _cut(self, at: int) -> None:
        """Let a piece end at an address."""
        index = bisect.bisect_left(self._starts, at)
        if at == self._end or (index < len(self._starts) and self._starts[index] == at):
            return
        base = self._starts[index - 1]
        end = self._starts[index] if index < len(self._starts) else self._end
        self._provider.split(base, end - base, at - base)
        self._starts.insert(index, at)
        self._usable[at] = self._usable[base]

    def _join(self, at: int) -> None:
        """Make one piece of those before and behind an address, if they are in one state."""
        index = bisect.bisect_left(self._starts, at)
        if not 0 < index < len(self._starts) or self._starts[index] != at:
            return
        low = self._starts[index - 1]
        if self._usable[low] != self._usable[at]:
            return
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self._end
        self._provider.merge(low, at, end - low)
        del self._starts[index]
        del self._usable[at]


class CutExtents:
    """The cuts of those extents of a pool that are not one usable piece."""

    def __init__(self) -> None:
        self._cuts: dict[int, Cuts] = {}

    def enter(self, extent: Extent, *, usable: bool) -> None:
        """Enter an extent that is one piece, as it came from its provider."""
        self._cuts[extent.base] = Cuts(extent, usable=usable)

    def isolate(self, start: int, size: int) -> None:
        """Make a free range a piece of its own; see `Cuts.isolate`."""
        self.around(start).isolate(start, size)

    def mark(self, start: int, size: int, *, usable: bool) -> None:
        """Note that an isolated piece has changed its state, and join it with its neighbours."""
        self.note(start, usable=usable)
        self.join(start, size)

    def note(self, start: int, *, usable: bool) -> None:
        """Note that an isolated piece has changed its state; see `Cuts.note`."""
        self.around(start).note(start, usable=usable)

    def join(self, start: int, size: int) -> None:
        """Join a piece with its neighbours, once all that has changed is noted; see `Cuts.join`."""
        self.around(start).join(start, size)

    def around(self, address: int) -> Cuts:
        """Return the cuts of the extent that a free address is in."""
        extent = innermost(address)
        assert extent is not None, f"{address:#x} is in no extent"
        return self._cuts.setdefault(extent.base, Cuts(extent))

    def pieces(self, extent: Extent) -> list[tuple[int, int]]:
        """Return (start, bytes) of the pieces that make up an extent, by address."""
        cuts = self._cuts.get(extent.base)
        return [(extent.base, extent.size)] if cuts is None else cuts.pieces()

    def extents_of(self, space: ExtentMap) -> list[Extent]:
        """Return those extents of the pool's map that are cut, or were; O(extents)."""
        if not self._cuts:
            return []
        return [extent for extent in list(space.extents.values()) if extent.base in self._cuts]

    def forget(self, extent: Extent) -> None:
        """The extent is gone."""
        self._cuts.pop(extent.base, None)
