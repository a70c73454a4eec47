"""Work on the caller's immediate command lists, and how it is waited for.

Level Zero has no call that waits for a whole device, and a list that the caller has destroyed
must not be touched.  So each piece of work signals an event that is umfpy's own.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from umfpy.errors import InvalidArgument
from umfpy.providers.level_zero.constants import Flag
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import ze_event_desc_t, ze_event_pool_desc_t

#: Wait without end: UINT64_MAX (Core API, zeEventHostSynchronize).
_FOREVER = (1 << 64) - 1

#: How much work may be under way before the oldest is waited for.
_MOST_PENDING = 64

#: Queues work on a list and lets it signal an event: ``append(list, event)``.
Append = Callable[[int, int], None]


class StreamWork:
    """What one provider has queued on the caller's lists."""

    def __init__(self, driver: LevelZeroDriver, context: Context) -> None:
        self._driver = driver
        self._context = context
        self._lock = threading.Lock()
        #: Each event has a pool of its own, for there is no bound to how many threads wait.
        self._pool_of: dict[int, int] = {}
        self._empty_pools: list[int] = []
        self._free: list[int] = []
        self._pending: deque[int] = deque()
        self._watched: set[int] = set()

    def watch(self, stream: int) -> None:
        """Have `wait` wait for everything on a list, also for what umfpy did not queue."""
        if stream < 1:
            raise InvalidArgument(f"{stream} is no ze_command_list_handle_t")
        with self._lock:
            self._watched.add(stream)

    def unwatch(self, stream: int) -> None:
        """Undo `watch`.

        Raises
        ------
        InvalidArgument
            The list is not watched.
        """
        with self._lock:
            if stream not in self._watched:
                raise InvalidArgument(f"the command list {stream:#x} is not watched")
            self._watched.discard(stream)

    def queue(self, stream: int, append: Append) -> None:
        """Queue work on a list; `wait` waits for it."""
        with self._lock:
            event = self._take()
            try:
                append(stream, event)
            except BaseException:
                self._free.append(event)
                raise
            self._pending.append(event)

    def perform(self, stream: int, append: Append) -> None:
        """Queue work on a list and return when it is done: zeEventHostSynchronize."""
        with self._lock:
            event = self._take()
        append(stream, event)
        self._driver.call("zeEventHostSynchronize", event, _FOREVER)
        self._driver.call("zeEventHostReset", event)
        # After a failure nobody knows its state: then it is used no more, only destroyed.
        with self._lock:
            self._free.append(event)

    def wait(self) -> None:
        """Return when all that was queued, and all work on watched lists, is done.

        zeCommandListAppendBarrier with an event, zeEventHostSynchronize.
        """
        with self._lock:
            watched = list(self._watched)
        for stream in watched:
            self.queue(stream, self._barrier)
        with self._lock:
            while self._pending:
                self._finish_oldest()

    def close(self) -> None:
        """Wait for what is queued, and destroy the events: zeEventDestroy, zeEventPoolDestroy.

        Raises
        ------
        DriverError
            The driver refused; a later call tries again.
        """
        with self._lock:
            while self._pending:
                self._finish_oldest()
            self._free.clear()
            while self._pool_of:
                event, pool = next(iter(self._pool_of.items()))
                self._driver.call("zeEventDestroy", event)
                del self._pool_of[event]
                self._empty_pools.append(pool)
            while self._empty_pools:
                self._driver.call("zeEventPoolDestroy", self._empty_pools[-1])
                self._empty_pools.pop()

    def _barrier(self, stream: int, event: int) -> None:
        self._driver.call("zeCommandListAppendBarrier", stream, event, 0, None)

    def _take(self) -> int:
        """Return an event that is not signalled."""
        if len(self._pending) == _MOST_PENDING:
            self._finish_oldest()
        return self._free.pop() if self._free else self._create()

    def _finish_oldest(self) -> None:
        event = self._pending[0]
        self._driver.call("zeEventHostSynchronize", event, _FOREVER)
        self._driver.call("zeEventHostReset", event)
        self._free.append(self._pending.popleft())

    def _create(self) -> int:
        """Return a new event that the host can wait for: zeEventPoolCreate, zeEventCreate."""
        if not self._empty_pools:
            visible = ze_event_pool_desc_t(flags=Flag.ZE_EVENT_POOL_FLAG_HOST_VISIBLE, count=1)
            pool = self._driver.make("zeEventPoolCreate", self._context.handle, visible, 0, None)
            self._empty_pools.append(pool)
        host = Flag.ZE_EVENT_SCOPE_FLAG_HOST
        description = ze_event_desc_t(index=0, signal=host, wait=host)
        event = self._driver.make("zeEventCreate", self._empty_pools[-1], description)
        self._pool_of[event] = self._empty_pools.pop()
        return event
