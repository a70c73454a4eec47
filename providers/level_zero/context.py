"""Contexts: one for each driver that all providers share, or the caller's own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from umfpy.arguments import as_number
from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import ze_context_desc_t

#: Reentrant: the garbage collector may drop a provider while this thread has the lock.
_lock = threading.RLock()
#: By driver: handle and how many hold it.  Memory of one context means nothing in another, so
#: that copies between providers need them to have the same.
_shared: dict[int, tuple[int, int]] = {}
#: Contexts that were let go while their thread was at the table: it does that when it is through.
_waiting: list[Context] = []
_at_it = False


class Context:
    """A context, held until `release`.

    Parameters
    ----------
    owner
        The driver that the context is of.
    handle
        A ``ze_context_handle_t`` of the caller's, which stays the caller's to destroy; None for
        the one that all such providers of this process share.
    """

    def __init__(self, driver: LevelZeroDriver, owner: int, handle: int | None = None) -> None:
        number = as_number(handle)
        if handle is not None and (number is None or number < 1):
            raise InvalidArgument(
                f"{handle!r} is no ze_context_handle_t; leave the context out for umfpy's own"
            )
        self._driver = driver
        self._owner = owner
        self._shares = number is None
        self._held = False
        self._closed = False
        self._handle = 0 if number is None else number
        _ = self.handle

    @property
    def handle(self) -> int:
        """The ``ze_context_handle_t``; another one maybe after `rest`, the last after `release`."""
        if self._shares and not self._held and not self._closed:
            return self._acquire()
        return self._handle

    def rest(self) -> None:
        """Let it go until it is needed again; as `release`.  Nothing of it may be in use."""
        with _lock:
            if _at_it:
                _waiting.append(self)
                return
            with _at_the_table():
                self._let_go()

    def release(self) -> None:
        """Let it go, once; the last to hold umfpy's own destroys it: zeContextDestroy.

        Raises
        ------
        DriverError
            The driver refused; a later call tries again.
        """
        self._closed = True
        self.rest()

    def _let_go(self) -> None:
        if not self._held:
            return
        handle, holders = _shared[self._owner]
        if holders == 1:
            self._driver.call("zeContextDestroy", handle)
            del _shared[self._owner]
        else:
            _shared[self._owner] = handle, holders - 1
        self._held = False

    def _acquire(self) -> int:
        with _lock, _at_the_table():
            if self._held:  # another thread was faster
                return self._handle
            handle, holders = _shared.get(self._owner, (0, 0))
            if not holders:
                description = ze_context_desc_t()
                handle = self._driver.make("zeContextCreate", self._owner, description)
            _shared[self._owner] = handle, holders + 1
            self._handle = handle
            self._held = True
            return handle


@contextmanager
def _at_the_table() -> Iterator[None]:
    """Read and write `_shared` with the lock, and let go afterwards what was let go meanwhile."""
    global _at_it
    _at_it = True
    try:
        yield
        while _waiting:
            with suppress(UmfpyError):  # it was dropped: nobody is there to be told
                _waiting.pop()._let_go()
    finally:
        _at_it = False
