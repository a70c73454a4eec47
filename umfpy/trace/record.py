"""Recording what a program asks of a pool."""

from __future__ import annotations

from typing import Protocol

from umfpy.trace.writer import TraceWriter


class RawPool(Protocol):
    """What is recorded: the face of a pool that plug-ins use."""

    def malloc(
        self, size: int, alignment: int = 0, stream: int | None = None, zero: bool = False
    ) -> int: ...

    def free(self, ptr: int, size: int | None = None, stream: int | None = None) -> None: ...


class Recorder:
    """Stands in for a pool towards a plug-in, and writes down each call that succeeded.

    For one thread at a time: the order of the lines is the order of the calls.

    Parameters
    ----------
    pool
        Where the calls go.
    writer
        Where the trace goes; it stays the caller's to close.
    """

    def __init__(self, pool: RawPool, writer: TraceWriter) -> None:
        self._pool = pool
        self._writer = writer
        self._ids: dict[int, int] = {}
        self._next = 0

    def malloc(
        self, size: int, alignment: int = 0, stream: int | None = None, zero: bool = False
    ) -> int:
        """As `umfpy.Pool.malloc`; `stream` is a native handle or None."""
        ptr = self._pool.malloc(size, alignment, stream, zero)
        self._ids[ptr] = self._next
        self._writer.allocate(self._next, size, stream or 0)
        self._next += 1
        return ptr

    def free(self, ptr: int, size: int | None = None, stream: int | None = None) -> None:
        """As `umfpy.Pool.free`."""
        self._pool.free(ptr, size, stream)
        if ptr:
            self._writer.free(self._ids.pop(ptr), stream)
