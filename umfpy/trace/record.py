"""Recording what a program asks of a pool."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from functools import partial
from typing import TYPE_CHECKING

from umfpy.arguments import check_kind
from umfpy.core.pages import stream_number
from umfpy.core.pool import BasePool
from umfpy.provider import Provider
from umfpy.trace.format import ALLOCATE, FREE, Event
from umfpy.trace.recorded import RecordedAllocation
from umfpy.trace.writer import TraceWriter

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class Recorder:
    """Stands in for a pool, and writes down each call that succeeded.

    It has what a program asks a pool for, `allocate`, `malloc` and `free`, and takes the pool's
    place in `umfpy.integrations.cupy.install`.  Any thread may call; the lines of one thread are in
    the order of its calls.  Once the writer is closed, calls go on to the pool and are not
    recorded, nor are frees of what was allocated beside the recorder.

    >>> with TraceWriter("training.csv.gz") as writer:                        # doctest: +SKIP
    ...     with umfpy.integrations.cupy.using(Recorder(pool, writer)):
    ...         train()

    Parameters
    ----------
    pool
        Where the calls go.
    writer
        Where the trace goes; it stays the caller's to close.
    """

    def __init__(self, pool: BasePool, writer: TraceWriter) -> None:
        self._pool = check_kind(pool, BasePool, "pool", "a pool of umfpy")
        self._writer = check_kind(writer, TraceWriter, "writer", "a TraceWriter")
        self._numbers = itertools.count()
        self._ids: dict[int, int] = {}  # of what `malloc` gave, by address
        self._events: deque[Event] = deque()
        self._writing = threading.Lock()

    @property
    def name(self) -> str:
        """Of the pool."""
        return self._pool.name

    @property
    def provider(self) -> Provider:
        """Of the pool."""
        return self._pool.provider

    def allocate(
        self, size: int, alignment: int = 0, stream: Stream = None, zero: bool = False
    ) -> RecordedAllocation:
        """As `umfpy.Pool.allocate`."""
        allocation = self._pool.allocate(size, alignment, stream, zero)
        number = next(self._numbers)
        self._note(Event(ALLOCATE, number, allocation.size, allocation.stream))
        return RecordedAllocation(allocation, partial(self._note_free, number))

    def malloc(
        self, size: int, alignment: int = 0, stream: Stream = None, zero: bool = False
    ) -> int:
        """As `umfpy.Pool.malloc`."""
        ptr = self._pool.malloc(size, alignment, stream, zero)
        self._ids[ptr] = number = next(self._numbers)
        self._note(Event(ALLOCATE, number, size, stream_number(stream)))
        return ptr

    def free(self, ptr: int, size: int | None = None, stream: Stream = None) -> None:
        """As `umfpy.Pool.free`."""
        # Taken out first: once it is free, another thread may get the address.
        number = self._ids.pop(ptr, None)
        try:
            self._pool.free(ptr, size, stream)
        except BaseException:
            if number is not None:
                self._ids[ptr] = number
            raise
        if number is not None:
            self._note_free(number, stream)

    def _note_free(self, number: int, stream: Stream) -> None:
        on = None if stream is None else stream_number(stream)
        self._note(Event(FREE, number, 0, on))

    def _note(self, event: Event) -> None:
        """Write an event down; whoever is writing already writes it as well.

        That is another thread, or this one, where the garbage collector drops an allocation in the
        middle of writing.
        """
        self._events.append(event)
        while self._events and self._writing.acquire(blocking=False):
            try:
                while self._events:
                    self._write(self._events.popleft())
            finally:
                self._writing.release()

    def _write(self, event: Event) -> None:
        if not self._writer.closed:
            self._writer.write((event,))

    def __repr__(self) -> str:
        return f"Recorder({self._pool!r})"
