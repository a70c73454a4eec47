"""The lock of a pool that grows."""

from __future__ import annotations

import threading
from types import TracebackType

#: Per thread: how many growth locks it holds, of whatever pools.
_held = threading.local()


class GrowthLock:
    """One growth at a time in a pool; reentrant.

    A pool grows by calling the provider below it, which may be a pool that grows in turn: locks
    are taken from the top down.  Memory that has run out is asked of pools beside, which is
    against that order, so that a thread with any such lock does not wait there: see `enter`.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def enter(self, *, wait: bool | None = None) -> bool:
        """Take the lock; False if it is another thread's and waiting for it could be for ever.

        By default a thread waits exactly if it holds no lock of this kind yet.
        """
        held = getattr(_held, "count", 0)
        if not self._lock.acquire(blocking=held == 0 if wait is None else wait):
            return False
        _held.count = held + 1
        return True

    def leave(self) -> None:
        _held.count -= 1
        self._lock.release()

    def __enter__(self) -> None:
        self.enter(wait=True)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.leave()
