"""Memory that sleeps is made ready again: all that a request needs, or none of it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from umfpy.core.extents import SAFE, UNBACKED
from umfpy.errors import OutOfMemoryError, UmfpyError
from umfpy.pools.backing import commit
from umfpy.pools.claims import Claim

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap
    from umfpy.manager.holdings import Holdings
    from umfpy.pools.cuts import CutExtents
    from umfpy.pools.window import Free
    from umfpy.provider import Provider


class Waking:
    """Brings parts of one pool's pages back; callers hold its growth lock.

    Parameters
    ----------
    space, provider, cuts
        Of the pool.
    """

    def __init__(self, space: ExtentMap, provider: Provider, cuts: CutExtents) -> None:
        self._map = space
        self._provider = provider
        self._cuts = cuts

    def wake(self, parts: Sequence[Free], holdings: Holdings) -> bool:
        """Make parts ready for requests; False, with nothing changed, if memory is short.

        Contents that were hidden are kept, others may be anything.  True says that the parts are
        ready, or that another thread was faster: the caller looks again.  Raises what the provider
        does, but for lack of memory, with nothing changed.

        During a capture what had woken before a later part failed stays ready: to take memory
        away the device is waited for, which would break the capture.
        """
        new = sum(part.size for part in parts if part.state == UNBACKED)
        with ExitStack() as held:
            claims = []
            for part in parts:  # before room is made: these pages are to stay
                claim = Claim.take(self._map, part.start, part.size, part.state)
                if claim is None:
                    return True
                claims.append(held.enter_context(claim))
            with holdings.admitting(new) if new else nullcontext(True) as granted:
                if not granted:
                    return False
                try:
                    self._commit(parts, claims, undo=not holdings.frozen)
                except OutOfMemoryError:
                    return False
                held.close()  # it counts as held before a budget forgets that it is coming
        holdings.totals.note()
        return True

    def _commit(self, parts: Sequence[Free], claims: Sequence[Claim], *, undo: bool) -> None:
        done = 0
        try:
            for part, claim in zip(parts, claims, strict=True):
                self._cuts.isolate(part.start, part.size)
                commit(self._provider, part.start, part.size)
                claim.become(SAFE)
                self._cuts.note(part.start, usable=True)
                done += 1
        except BaseException:
            with contextlib.suppress(UmfpyError):  # the first error is the one to tell
                while undo and done:
                    done -= 1
                    self._put_to_sleep(parts[done], claims[done])
                self._join(parts)
            raise
        self._join(parts)

    def _put_to_sleep(self, part: Free, claim: Claim) -> None:
        """Undo what was done to a part, which nobody could use meanwhile."""
        lower = self._provider.decommit if part.state == UNBACKED else self._provider.dalloc
        lower(part.start, part.size)
        claim.become(part.state)
        self._cuts.note(part.start, usable=False)

    def _join(self, parts: Sequence[Free]) -> None:
        for part in parts:
            self._cuts.join(part.start, part.size)
