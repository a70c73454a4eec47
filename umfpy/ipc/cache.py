"""The importer's side: each root is opened once, counted, and kept for a while when idle.

Two rules keep this free of deadlocks.  No driver is called under the cache's lock.  And what
lets a root go, which may be the garbage collector in the middle of anything, never waits for a
lock: it leaves a note, and whoever holds the lock reads it afterwards.
"""

from __future__ import annotations

import threading
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from umfpy import leaving
from umfpy.errors import IpcError, OutOfMemoryError, UmfpyError
from umfpy.ipc.handle import IpcRoot
from umfpy.provider import Provider

#: Opens a root natively and returns its address.
Opener = Callable[[], int]


@dataclass(frozen=True)
class CacheInfo:
    """The state of the importer's cache at one moment."""

    limit: int  #: the most idle roots that are kept open
    used: int  #: roots open with mappings
    idle: int  #: roots open without
    opens: int  #: native opens so far
    closes: int  #: native closes so far


class OpenRoot:
    """A root of another process as it is open here; made and counted by a `RootCache`.

    ``lock`` is held while the driver opens or closes it.  ``address`` is None while it is not
    open, and does not change while ``users`` is above 0 and one of them has seen it.
    """

    def __init__(self, provider: Provider, root: IpcRoot) -> None:
        self.provider = provider
        self.root = root
        self.key = id(provider), root
        self.lock = threading.Lock()
        self.address: int | None = None
        self.users = 0


class RootCache:
    """The roots that are open in this process.

    Parameters
    ----------
    limit
        The most roots that stay open with no mapping left; beyond it the one that has been idle
        longest is closed.  0 closes each with its last mapping.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        #: By provider too: a root opened through one is never closed through another.  By all
        #: of the root: an export id that somebody repeats with another payload is another root.
        self._roots: dict[tuple[int, IpcRoot], OpenRoot] = {}
        self._idle: OrderedDict[tuple[int, IpcRoot], OpenRoot] = OrderedDict()
        self._released: deque[OpenRoot] = deque()
        self._opens = 0
        self._closes = 0
        self._foreign = False

    def acquire(self, provider: Provider, root: IpcRoot, opener: Opener) -> OpenRoot:
        """Return the root open, with one more user; `release` takes it back.

        Of several threads one opens it, and the others wait for that.  Where `opener` says that
        it cannot, idle roots are closed and it is asked again.  What it raises then leaves
        nothing behind; the next to come tries again.
        """
        with self._lock:
            entry = self._roots.setdefault((id(provider), root), OpenRoot(provider, root))
            entry.users += 1
            self._idle.pop(entry.key, None)
        try:
            with entry.lock:
                if entry.address is None:
                    entry.address = self._open(opener)
                    self._opens += 1
                    # By the root, which comes after its provider, and so goes before it.
                    leaving.enter(entry, lambda _: self.clear())
        except BaseException:
            warn_unclosed(self.release(entry))
            raise
        warn_unclosed(self._settle())
        return entry

    def release(self, entry: OpenRoot) -> list[UmfpyError]:
        """Take one user off a root, from anywhere, also in a destructor.

        Returns what drivers answered that refused to close a root; such a root is forgotten.
        In a forked child nothing happens.
        """
        if self._foreign:
            return []
        self._released.append(entry)
        return self._settle()

    def set_limit(self, limit: int) -> list[UmfpyError]:
        """Keep at most `limit` idle roots; returns as `release` does."""
        with self._lock:
            self._limit = limit
        return self._settle()

    def clear(self) -> list[UmfpyError]:
        """Close all idle roots; returns as `release` does."""
        errors: list[UmfpyError] = []
        while True:
            with self._lock:
                victim = self._next_victim(keep=0)
            if victim is None:
                return errors + self._settle()
            errors += self._close(victim)

    def info(self) -> CacheInfo:
        """Return the counters."""
        with self._lock:
            used = sum(entry.users > 0 for entry in self._roots.values())
            info = CacheInfo(self._limit, used, len(self._idle), self._opens, self._closes)
        warn_unclosed(self._settle())
        return info

    def abandon(self) -> None:
        """Do nothing any more: this is a forked child, and the roots are its parent's."""
        self._foreign = True

    def _open(self, opener: Opener) -> int:
        """Open a root, if need be without any idle one.

        What they stand for may be gone, and this one at its place: drivers that have one address
        for both refuse it for as long as the old one is open.  Or they take the room.
        """
        try:
            return opener()
        except (IpcError, OutOfMemoryError):
            before = self._closes
            warn_unclosed(self.clear())
            if self._closes == before:
                raise
        return opener()

    def _settle(self) -> list[UmfpyError]:
        """Read the notes of what was released, and close idle roots beyond the limit."""
        errors: list[UmfpyError] = []
        while self._released or len(self._idle) > self._limit:
            # Whoever has the lock, possibly this very thread further out, comes here after it.
            if not self._lock.acquire(blocking=False):
                break
            try:
                victim = self._next_victim(self._limit)
            finally:
                self._lock.release()
            if victim is not None:
                errors += self._close(victim)
        return errors

    def _next_victim(self, keep: int) -> OpenRoot | None:
        """Return the root that has been idle longest, locked, if more than `keep` are."""
        while self._released:
            entry = self._released.popleft()
            entry.users -= 1
            if entry.users == 0 and entry.address is None:
                self._drop(entry)
            elif entry.users == 0:
                self._idle[entry.key] = entry
        if len(self._idle) <= keep:
            return None
        victim = self._idle.popitem(last=False)[1]
        # Free: who opens a root is counted as its user before, and an idle one has none.
        victim.lock.acquire()
        return victim

    def _drop(self, entry: OpenRoot) -> None:
        """Forget a root that is neither open nor used; a later one of its key stays."""
        if self._roots.get(entry.key) is entry:
            del self._roots[entry.key]

    def _close(self, victim: OpenRoot) -> list[UmfpyError]:
        """Close a locked root.  Whoever wants it meanwhile waits, and opens it anew."""
        address, victim.address = victim.address, None
        try:
            victim.provider.ipc_close(address or 0, victim.root.size)
            self._closes += 1
        except UmfpyError as error:
            return [error]
        finally:
            with self._lock:
                if victim.users == 0:
                    self._drop(victim)
            victim.lock.release()
        return []


def warn_unclosed(errors: list[UmfpyError]) -> None:
    """Warn of roots that a driver refused to close, where nobody is there to be told."""
    for error in errors:
        warnings.warn(
            f"memory of another process could not be closed and stays mapped: {error}",
            ResourceWarning,
            stacklevel=3,
        )


def raise_unclosed(errors: list[UmfpyError]) -> None:
    """Raise the first of what drivers answered that refused to close a root."""
    for error in errors:
        raise error
