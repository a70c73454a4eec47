"""Slabs that went down a rung, and come back when their bucket needs cells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED, innermost
from umfpy.errors import OutOfMemoryError
from umfpy.pools.backing import commit
from umfpy.pools.claims import Claim
from umfpy.pools.departure import bounds

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap
    from umfpy.pools.cuts import CutExtents

#: The states of slabs that went down; the hidden ones have their memory still.
_ASLEEP = (HIDDEN, UNBACKED)


def asleep(space: ExtentMap) -> Iterator[tuple[Extent, int]]:
    """Tell which slabs of a bucket are down, and in which state."""
    for state in _ASLEEP:
        for start, _ in space.free_ranges(state):
            slab = innermost(start)
            if slab is not None and slab.map is space:
                yield slab, state


def wake_one(space: ExtentMap, cuts: CutExtents, admit: Callable[[int], None]) -> bool:
    """Bring a slab back; False if there is none, or no memory for it.

    `admit` raises OutOfMemoryError where so many bytes more are beyond a limit.  Raises whatever
    else the provider does; the slab stays down.
    """
    for slab, state in asleep(space):
        with contextlib.suppress(OutOfMemoryError):
            return _wake(slab, state, cuts, admit)
    return False


def _wake(slab: Extent, state: int, cuts: CutExtents, admit: Callable[[int], None]) -> bool:
    low, high = bounds(slab)
    claim = Claim.take(slab.map, low, high - low, state)
    if claim is None:
        return False
    with claim:
        if state == UNBACKED:
            admit(claim.size)
        commit(slab.provider, slab.base, slab.size)
        claim.become(SAFE)
        cuts.mark(slab.base, slab.size, usable=True)
    return True
