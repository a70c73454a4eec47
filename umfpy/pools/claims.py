"""Free memory that one thread has to itself while a driver works on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umfpy.core.extents import COMING, HIDDEN, LEAVING, SAFE, UNBACKED

if TYPE_CHECKING:
    from types import TracebackType

    from umfpy.core.extents import ExtentMap

#: What memory is meanwhile: as much memory as it was.
_MEANWHILE = {SAFE: LEAVING, HIDDEN: LEAVING, UNBACKED: COMING}


class Claim:
    """A free range that nobody else gets, until the body ends.

    Then it is what `become` was told last, and what it was before if that was never called: a
    provider that fails has changed nothing.

    Attributes
    ----------
    start, size
        The range, in bytes.
    """

    def __init__(self, space: ExtentMap, start: int, size: int, state: int) -> None:
        self.start = start
        self.size = size
        self._map = space
        self._meanwhile = _MEANWHILE[state]
        self._then = state
        #: A stream may be at work on what was free a moment ago, but on nothing that went down.
        self._waited = state != SAFE

    @classmethod
    def take(cls, space: ExtentMap, start: int, size: int, state: int) -> Claim | None:
        """Claim a range that is free in one state; None if another thread was first.

        Raises MemoryError, with nothing changed, without host memory for it.
        """
        claim = cls(space, start, size, state)
        return claim if space.retag(start, size, state, claim._meanwhile) else None

    def become(self, state: int) -> None:
        """Say what the range is now: `SAFE`, `HIDDEN` or `UNBACKED`."""
        self._then = state

    def waited(self) -> None:
        """Say that the device was waited for since the range was claimed."""
        self._waited = True

    def release(self) -> None:
        """Let go of the range, in the state that it is in.

        While it was claimed a second stream may have come: without a wait it is kept from both.
        """
        self._map.retag(self.start, self.size, self._meanwhile, self._then, waited=self._waited)

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()
