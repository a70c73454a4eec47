"""Command queues, as the streams of OpenCL."""

from __future__ import annotations

import threading
from typing import Any

from umfpy.errors import InvalidArgument
from umfpy.providers.opencl.binding import OpenCL


class Queues:
    """The queues that a provider knows, by native handle: the ``stream`` of its pools.

    OpenCL cannot name the queues of a context, nor wait for all of them, so that a queue has to
    be made known.  It is kept alive from then on: a handle never becomes that of another queue.
    """

    def __init__(self, driver: OpenCL, context: Any, device: Any) -> None:
        self._driver = driver
        self._context = context
        self._lock = threading.Lock()
        self.default = driver.call(driver.cl.CommandQueue, context, device)
        self._known: dict[int, Any] = {self.default.int_ptr: self.default}

    def add(self, queue: Any) -> int:
        """Return the handle of a queue, which is known from now on.

        Raises
        ------
        InvalidArgument
            It is no queue, is one of another context, or runs its commands out of order: then
            memory that was freed could be used again before the commands before are done.
        """
        cl = self._driver.cl
        if not isinstance(queue, cl.CommandQueue):
            raise InvalidArgument(f"a pyopencl.CommandQueue is needed, not {queue!r}")
        if queue.context != self._context:
            raise InvalidArgument("the queue is of another context than the provider's `context`")
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            raise InvalidArgument(
                "the queue runs commands out of order, which says nothing about when freed memory "
                "may be used again; make one without OUT_OF_ORDER_EXEC_MODE_ENABLE"
            )
        with self._lock:
            self._known[queue.int_ptr] = queue
        return int(queue.int_ptr)

    def find(self, stream: int | None) -> Any:
        """Return the queue with that handle; the default queue for None and 0.

        Raises
        ------
        InvalidArgument
            No known queue has it.
        """
        if not stream:
            return self.default
        queue = self._known.get(stream)
        if queue is None:
            raise InvalidArgument(
                f"{stream:#x} is no queue that this provider knows; use provider.stream(queue)"
            )
        return queue

    def finish(self) -> None:
        """Wait for everything queued so far on all of them: clFinish."""
        with self._lock:
            queues = list(self._known.values())
        for queue in queues:
            self._driver.call(queue.finish)
