"""Captures that are open in this process, and what would break them.

A driver refuses some calls while a stream is captured, and the refusal spoils the capture, whoever
made the call: waiting for the device always, asking for memory in the stricter modes.  So every
pool makes such calls under `shrinking`, `waiting` or `growing`: they say no during a capture that
would break, and a capture begins once those under way are done.  Captures are those of
`MemoryManager`: what others have the driver capture nobody here knows of.
"""

from __future__ import annotations

import enum
import os
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple

from umfpy.errors import CaptureWouldBreak
from umfpy.provider import Capability, Provider


class CaptureMode(enum.Enum):
    """What else may be asked of the driver during a capture: the CUstreamCaptureMode of CUDA."""

    RELAXED = "relaxed"  #: anything that does not wait; memory, too
    THREAD_LOCAL = "thread-local"  #: no memory, in the thread that began the capture
    GLOBAL = "global"  #: no memory, in any thread


class Call(NamedTuple):
    """What a thread asks of a provider."""

    provider: Provider
    waits: bool  #: for the device, or gives memory back; else it asks for memory
    thread: int


@dataclass(frozen=True, eq=False)
class Window:
    """A capture that is open."""

    manager: str  #: the name of the manager that opened it
    provider: Provider
    mode: CaptureMode
    thread: int = field(default_factory=threading.get_ident)

    def forbids(self, call: Call) -> bool:
        """Return whether a call breaks it."""
        if not self._sees(call.provider):
            return False
        devices = {call.provider.device, self.provider.device}
        near = len(devices) == 1 or min(devices) < 0  # memory of the host is near to all of them
        return self._binds(call.thread) or (call.waits and near)

    def _sees(self, provider: Provider) -> bool:
        # Where no streams are nobody captures: in host memory a window only pins.
        streams = provider.capabilities & self.provider.capabilities & Capability.STREAMS
        return bool(streams) and driver_of(provider) == driver_of(self.provider)

    def _binds(self, thread: int) -> bool:
        if self.mode is CaptureMode.THREAD_LOCAL:
            return self.thread == thread
        return self.mode is CaptureMode.GLOBAL

    def __str__(self) -> str:
        return f"a capture is open ({self.mode.value}, of {self.manager!r})"


def driver_of(provider: Provider) -> str:
    """Return the name of the driver that a provider's memory comes from."""
    return provider.driver or provider.name


#: Reentrant: the garbage collector may drop a manager, see `after`, while this thread has the lock.
_lock = threading.RLock()
_call_done = threading.Condition(_lock)
_windows: tuple[Window, ...] = ()  # replaced as a whole, so that it is read without the lock
_under_way: list[Call] = []
_later: dict[int, tuple[object, Callable[[], object]]] = {}  # by id


def open_window(window: Window) -> None:
    """Have every pool know of a capture, and wait until nothing is under way that it forbids.

    The caller holds no lock of a pool, which what is under way may need.
    """
    global _windows
    with _lock:
        _windows = (*_windows, window)
        try:
            _call_done.wait_for(lambda: not _is_disturbed(window))
        except BaseException:
            _windows = tuple(other for other in _windows if other is not window)
            raise


def _is_disturbed(window: Window) -> bool:
    me = threading.get_ident()
    return any(call.thread != me and window.forbids(call) for call in _under_way)


def close_window(window: Window) -> None:
    """Forget a capture; after the last one, do what had to wait, see `after`."""
    global _windows
    with _lock:
        _windows = tuple(other for other in _windows if other is not window)
        due = [] if _windows else list(_later.values())
        if due:
            _later.clear()
    for _, act in due:
        try:
            act()
        except Exception as error:  # noqa: BLE001
            # It is the work of destructors, and whoever ends the capture must get his pins.
            warnings.warn(
                f"giving memory back after a capture failed: {error}", ResourceWarning, stacklevel=3
            )


def after(owner: object, act: Callable[[], object]) -> None:
    """Do `act` once no capture is open, or now; only the last one counts of each `owner`."""
    with _lock:
        if _windows:
            _later[id(owner)] = (owner, act)
            return
    act()


def is_frozen(provider: Provider) -> bool:
    """Return whether the provider's memory has to stay, and its device cannot be waited for."""
    windows = _windows
    return bool(windows) and _first_forbidding(windows, _waits_for(provider)) is not None


def refuse_waiting(name: str, provider: Provider) -> None:
    """Raise CaptureWouldBreak if waiting for the provider's device breaks a capture."""
    window = _first_forbidding(_windows, _waits_for(provider))
    if window is not None:
        raise _no_waiting(name, window)


def _waits_for(provider: Provider) -> Call:
    return Call(provider, True, threading.get_ident())


def _first_forbidding(windows: tuple[Window, ...], call: Call) -> Window | None:
    return next((window for window in windows if window.forbids(call)), None)


def _no_waiting(name: str, window: Window) -> CaptureWouldBreak:
    return CaptureWouldBreak(
        f"{name!r} cannot wait for the device: {window}, which would break; end it first"
    )


# What disturbs captures, each for a ``with`` block.  Nobody waits here.


@contextmanager
def shrinking(provider: Provider) -> Iterator[bool]:
    """Yield whether memory may go, and the device be waited for: not during a capture."""
    with _noted(provider, waits=True) as window:
        yield window is None


@contextmanager
def waiting(name: str, provider: Provider) -> Iterator[None]:
    """Let the device be waited for; CaptureWouldBreak if that breaks a capture."""
    with _noted(provider, waits=True) as window:
        if window is not None:
            raise _no_waiting(name, window)
        yield


@contextmanager
def growing(name: str, provider: Provider, size: int) -> Iterator[None]:
    """Let the provider be asked for memory; CaptureWouldBreak if that breaks a capture."""
    with _noted(provider, waits=False) as window:
        if window is not None:
            raise CaptureWouldBreak(
                f"{name!r} has nothing free for {size} bytes, and cannot ask the driver for more: "
                f"{window}, which would break; allocate and free as much before it, or capture in "
                "the mode 'relaxed'"
            )
        yield


@contextmanager
def _noted(provider: Provider, *, waits: bool) -> Iterator[Window | None]:
    """Note a call while it is under way; yields the capture that forbids it instead, if any."""
    if Capability.STREAMS not in provider.capabilities:
        yield None
        return
    call = Call(provider, waits, threading.get_ident())
    with _lock:
        mine = [other for other in _under_way if other.thread == call.thread]
        # A capture that forbids what this thread is at already waits for that to be done.
        windows = tuple(w for w in _windows if not any(map(w.forbids, mine)))
        window = _first_forbidding(windows, call)
        if window is None:
            _under_way.append(call)
    try:
        yield window
    finally:
        if window is None:
            with _lock:
                _under_way.remove(call)
                _call_done.notify_all()


def _forget() -> None:
    """In a forked child: the captures are the parent's, and so is whoever held the lock."""
    global _lock, _call_done, _windows
    _lock = threading.RLock()
    _call_done = threading.Condition(_lock)
    _windows = ()
    _under_way.clear()
    _later.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
