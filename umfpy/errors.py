"""Every error that umfpy raises, as one tree.

::

    UmfpyError
    ├── InvalidArgument          also ValueError
    │   ├── AlignmentError
    │   └── CaptureWouldBreak
    ├── NotSupported             also NotImplementedError
    ├── DriverUnavailable
    ├── DriverError              code, name, message, call
    ├── OutOfMemoryError         also MemoryError
    ├── CapacityExceeded
    ├── IpcError
    ├── StaleHandle              also LookupError
    └── ConfigurationError

A message says what happened, with the numbers, and what to do about it.  Unless its docstring
says otherwise, an error means that nothing was changed.  All of them pickle, because they cross
process boundaries in ``multiprocessing`` and in test runners.
"""

from __future__ import annotations

from typing import Any


class UmfpyError(Exception):
    """The root: ``except UmfpyError`` catches whatever umfpy raises on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by state, so that subclasses may take keyword-only arguments."""
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(cls: type[UmfpyError], args: tuple[Any, ...], state: dict[str, Any]) -> UmfpyError:
    # Not `cls.__new__`, which is MemoryError's own for OutOfMemoryError, and unsafe for it.
    error = Exception.__new__(cls, *args)
    error.args = args
    error.__dict__.update(state)
    return error


class InvalidArgument(UmfpyError, ValueError):
    """A value that the call cannot accept: a foreign pointer, a double free, a wrong size."""


class AlignmentError(InvalidArgument):
    """An alignment that is not a power of two, or that the source of memory cannot give."""


class CaptureWouldBreak(InvalidArgument):
    """What was asked would spoil a capture that is open; the driver was not called."""


class NotSupported(UmfpyError, NotImplementedError):
    """The provider or device cannot do this at all, whatever the arguments."""


class DriverUnavailable(UmfpyError):
    """A driver library, binding or device is missing; the message says how to get it."""


class DriverError(UmfpyError):
    """A driver call failed.

    Attributes
    ----------
    code
        The driver's own number.
    name
        The driver's name for it, such as ``CUDA_ERROR_INVALID_VALUE``.
    message
        The driver's own words.
    call
        The driver function that answered.
    """

    def __init__(self, call: str, code: int, name: str = "", message: str = "") -> None:
        self.call = call
        self.code = code
        self.name = name
        self.message = message
        words = f": {message}" if message else ""
        super().__init__(f"{call} failed with {name or 'error'} ({code}){words}")


class OutOfMemoryError(UmfpyError, MemoryError):
    """No memory for the request, after everything that could be given back was.

    Attributes are bytes, or None where the source of memory cannot tell: ``requested``; ``used``
    and ``reserved`` by the pool; its ``limit``; the ``largest_free`` block; and the ``provider``.
    """

    def __init__(
        self,
        message: str,
        *,
        requested: int | None = None,
        used: int | None = None,
        reserved: int | None = None,
        limit: int | None = None,
        largest_free: int | None = None,
        provider: str | None = None,
    ) -> None:
        super().__init__(message)
        self.requested = requested
        self.used = used
        self.reserved = reserved
        self.limit = limit
        self.largest_free = largest_free
        self.provider = provider


class CapacityExceeded(UmfpyError):
    """A fixed limit of a structure or a pool was reached; the message names it."""


class IpcError(UmfpyError):
    """An IPC handle that cannot be exported, trusted or opened."""


class StaleHandle(UmfpyError, LookupError):
    """A handle whose memory has been freed, rebound or never initialised."""


class ConfigurationError(UmfpyError):
    """A memory configuration that cannot be used."""
