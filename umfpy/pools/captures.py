"""Captures that are open in this process, and what would break them.

A driver refuses some calls while a stream is captured, and the refusal spoils the capture, whoever
made the call: waiting for the device always, asking for memory in the stricter modes.  So every
pool looks here before it makes such a call.  Captures are those of `MemoryManager`: what others
have the driver capture nobody here knows of.
"""

from __future__ import annotations

import enum
import os
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

from umfpy.errors import CaptureWouldBreak
from umfpy.provider import Capability, Provider


class CaptureMode(enum.Enum):
    """What else may be asked of the driver during a capture: the CUstreamCaptureMode of CUDA."""

    RELAXED = "relaxed"  #: anything that does not wait; memory, too
    THREAD_LOCAL = "thread-local"  #: no memory, in the thread that began the capture
    GLOBAL = "global"  #: no memory, in any thread


@dataclass(frozen=True, eq=False)
class Window:
    """A capture that is open."""

    manager: str  #: the name of the manager that opened it
    provider: Provider
    mode: CaptureMode
    thread: int = field(default_factory=threading.get_ident)

    def forbids_waiting(self, provider: Provider) -> bool:
        """Return whether waiting for the provider's device, or giving memory back, breaks it."""
        near = provider.device < 0 or provider.device == self.provider.device
        return self._sees(provider) and (near or self._binds())

    def forbids_growing(self, provider: Provider) -> bool:
        """Return whether asking the provider for memory breaks it."""
        return self._sees(provider) and self._binds()

    def _sees(self, provider: Provider) -> bool:
        # Where no streams are nobody captures: in host memory a window only pins.
        streams = provider.capabilities & self.provider.capabilities & Capability.STREAMS
        return bool(streams) and _driver_of(provider) == _driver_of(self.provider)

    def _binds(self) -> bool:
        if self.mode is CaptureMode.THREAD_LOCAL:
            return self.thread == threading.get_ident()
        return self.mode is CaptureMode.GLOBAL

    def __str__(self) -> str:
        return f"a capture is open ({self.mode.value}, of {self.manager!r})"


def _driver_of(provider: Provider) -> str:
    return provider.driver or provider.name


#: Reentrant: the garbage collector may drop a manager, see `after`, while this thread has the lock.
_lock = threading.RLock()
_windows: tuple[Window, ...] = ()  # replaced as a whole, so that it is read without the lock
_later: dict[int, tuple[object, Callable[[], object]]] = {}  # by id


def open_window(window: Window) -> None:
    """Have every pool know of a capture."""
    global _windows
    with _lock:
        _windows = (*_windows, window)


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
    return any(window.forbids_waiting(provider) for window in _windows)


def refuse_waiting(name: str, provider: Provider) -> None:
    """Raise CaptureWouldBreak if waiting for the provider's device breaks a capture."""
    for window in _windows:
        if window.forbids_waiting(provider):
            raise CaptureWouldBreak(
                f"{name!r} cannot wait for the device: {window}, which would break; end it first"
            )


def refuse_growing(name: str, provider: Provider, size: int) -> None:
    """Raise CaptureWouldBreak if asking the provider for memory breaks a capture."""
    for window in _windows:
        if window.forbids_growing(provider):
            raise CaptureWouldBreak(
                f"{name!r} has nothing free for {size} bytes, and cannot ask the driver for more: "
                f"{window}, which would break; allocate and free as much before it, or capture in "
                "the mode 'relaxed'"
            )


def _forget() -> None:
    """In a forked child: the captures are the parent's, and so is whoever held the lock."""
    global _lock, _windows
    _lock = threading.RLock()
    _windows = ()
    _later.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
