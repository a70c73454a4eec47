"""Immediate command lists of umfpy's own, on which work is done when a call returns."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from umfpy.providers.level_zero.constants import QueueMode
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device, queue_group
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import ze_command_queue_desc_t


class CommandLists:
    """Synchronous immediate lists of one device, made when they are first needed.

    A list may be used by one thread at a time (Core API, zeCommandListAppendMemoryFill), so that
    each call takes one for itself, and as many threads work at once as like.
    """

    def __init__(self, driver: LevelZeroDriver, context: Context, device: Device) -> None:
        self._driver = driver
        self._context = context
        self._device = device
        self._lock = threading.Lock()
        self._idle: list[int] = []
        self._ordinal: int | None = None

    @contextmanager
    def borrowed(self) -> Iterator[int]:
        """Yield a list that is this thread's until the block ends."""
        with self._lock:
            handle = self._idle.pop() if self._idle else 0
        handle = handle or self._create()
        try:
            yield handle
        finally:
            with self._lock:
                self._idle.append(handle)

    def close(self) -> None:
        """Destroy the lists that nobody uses: zeCommandListDestroy; another `borrowed` makes
        new ones.

        Raises
        ------
        DriverError
            The driver refused; a later call tries again.
        """
        while True:
            with self._lock:
                if not self._idle:
                    return
                handle = self._idle.pop()
            try:
                self._driver.call("zeCommandListDestroy", handle)
            except BaseException:
                with self._lock:
                    self._idle.append(handle)
                raise

    def _create(self) -> int:
        """Return a new list: zeCommandListCreateImmediate."""
        if self._ordinal is None:
            self._ordinal = queue_group(self._driver, self._device)
        description = ze_command_queue_desc_t(
            ordinal=self._ordinal, mode=QueueMode.ZE_COMMAND_QUEUE_MODE_SYNCHRONOUS
        )
        return self._driver.make(
            "zeCommandListCreateImmediate", self._context.handle, self._device.handle, description
        )
