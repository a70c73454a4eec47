"""Extents on their way back to their provider, and back again where it does not take them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.release import withdraw_export

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap
    from umfpy.pools.cuts import CutExtents


class Range(NamedTuple):
    """Free memory in one state."""

    start: int
    size: int
    state: int


class Departure:
    """A wholly free extent that is to go, whatever states its parts are in.

    It leaves its map before the device is waited for and the provider called, so that nobody can
    take it meanwhile.  It goes piece by piece, as its provider knows them.

    Attributes
    ----------
    extent
        The extent.
    backed
        The bytes of its blocks that have memory.
    ready
        Of those, the bytes that a request could have taken.
    """

    def __init__(self, extent: Extent, cuts: CutExtents, apart: Sequence[Range]) -> None:
        self.extent = extent
        self._map = extent.map
        self._cuts = cuts
        self._apart = _within(apart, extent)
        low, high = bounds(extent)
        self.backed = high - low - self._bytes_in(UNBACKED)
        self.ready = self.backed - self._bytes_in(HIDDEN)

    def leave(self) -> bool:
        """Leave the map; False, with nothing changed, if some of it is used or being worked on."""
        return self._map.remove(self.extent, mixed=True)

    def come_back(self, *, waited: bool = True) -> None:
        """Undo `leave`; `waited` says whether the device was waited for since."""
        self._map.restore(self.extent, waited=waited)
        if not self.extent.backed:  # what was in several states comes back without backing
            self._put_in_state(self.extent, waited=waited)

    def free(self) -> None:
        """Give the extent to its provider.

        If the provider fails, what it did not take is back in the map, as it was, each piece an
        extent of its own if there is not all of it left.
        """
        extent, pieces = self.extent, self._cuts.pieces(self.extent)
        gone = 0
        try:
            withdraw_export(extent)
            for start, size in pieces:
                extent.provider.free(start, size)
                gone += 1
        except BaseException:
            if gone:
                self._cuts.forget(extent)
                for start, size in pieces[gone:]:
                    self._keep_piece(start, size)
            else:
                self.come_back()
            raise
        self._cuts.forget(extent)

    def _keep_piece(self, start: int, size: int) -> None:
        """Have a piece that the provider did not take as an extent of its own."""
        piece = self._map.add(start, size, self.extent.provider, backed=False)
        usable = all(part.state == SAFE for part in self._states(piece))
        self._cuts.enter(piece, usable=usable)
        self._put_in_state(piece)

    def _put_in_state(self, extent: Extent, *, waited: bool = True) -> None:
        """Move the parts of an unbacked extent to the states that they had."""
        for start, size, state in self._states(extent):
            if state != UNBACKED:
                self._map.retag(start, size, UNBACKED, state, waited=waited)

    def _states(self, extent: Extent) -> Iterator[Range]:
        """Tell the states of all the free memory in an extent: what was not apart was safe."""
        at, end = bounds(extent)
        for start, size, state in self._apart:
            low, high = max(start, at), min(start + size, end)
            if low >= high:  # in another piece
                continue
            if at < low:
                yield Range(at, low - at, SAFE)
            yield Range(low, high - low, state)
            at = high
        if at < end:
            yield Range(at, end - at, SAFE)

    def _bytes_in(self, state: int) -> int:
        return sum(part.size for part in self._apart if part.state == state)


def bounds(extent: Extent) -> tuple[int, int]:
    """Return where the blocks of an extent begin and end: its ends fill no granule maybe."""
    mask = extent.map.granule - 1
    return extent.base + mask & ~mask, extent.base + extent.size & ~mask


def _within(ranges: Sequence[Range], extent: Extent) -> Sequence[Range]:
    """Return those of the sorted ranges that begin in an extent; a block never leaves its own."""
    ends = (extent.base,), (extent.base + extent.size,)
    first, last = (bisect_left(ranges, end) for end in ends)
    return ranges[first:last]


def departures(space: ExtentMap, cuts: CutExtents) -> list[Departure]:
    """Return what may go: extents that are wholly free, or cut up and wholly free maybe.

    Largest first.  O(extents + free memory that is set apart).
    """
    found = {extent.base: extent for extent in space.free_extents()}
    found.update((extent.base, extent) for extent in cuts.extents_of(space))
    made = departures_of(found.values(), space, cuts)
    return sorted(made, key=lambda departure: departure.extent.size, reverse=True)


def departures_of(extents: Iterable[Extent], space: ExtentMap, cuts: CutExtents) -> list[Departure]:
    """Return the same for given extents of a map, in their order."""
    apart = sorted(
        Range(start, size, state)
        for state in (HIDDEN, UNBACKED)
        for start, size in space.free_ranges(state)
    )
    return [Departure(extent, cuts, apart) for extent in extents]
