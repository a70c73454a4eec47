"""The exporter's side of IPC: handles that the driver has made, until they are given back."""

from __future__ import annotations

import ctypes
import threading
from collections import Counter

from umfpy.errors import InvalidArgument
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.ipc import LevelZeroPayload
from umfpy.providers.level_zero.structs import ze_ipc_mem_handle_t


class LevelZeroExports:
    """The exports of one provider."""

    def __init__(self, driver: LevelZeroDriver, context: Context, uuid: str) -> None:
        self._driver = driver
        self._context = context
        self._uuid = uuid
        self._lock = threading.Lock()
        self._live: Counter[bytes] = Counter()

    def export(self, base: int, offset: int, size: int) -> bytes:
        """Return the payload for a part of the native allocation at `base`: zeMemGetIpcHandle."""
        handle = ze_ipc_mem_handle_t()
        self._driver.call("zeMemGetIpcHandle", self._context.handle, base, ctypes.byref(handle))
        made = LevelZeroPayload.of_this_process(self._uuid, bytes(handle), offset, size).pack()
        with self._lock:
            self._live[made] += 1
        return made

    def release(self, payload: bytes) -> None:
        """Give an export back: zeMemPutIpcHandle, where the loader has it.

        Where it has not, the driver lets the handle go with the memory.

        Raises
        ------
        InvalidArgument
            It is not one of this provider's, or was released already.
        """
        with self._lock:
            self._take(payload)
        try:
            self._put(LevelZeroPayload.unpack(payload))
        except BaseException:
            with self._lock:
                self._live[payload] += 1
            raise

    def check(self, payload: bytes) -> LevelZeroPayload:
        """Return the parsed payload of a live export; raises as `release` does."""
        with self._lock:
            self._take(payload)
            self._live[payload] += 1
        return LevelZeroPayload.unpack(payload)

    def _put(self, payload: LevelZeroPayload) -> None:
        if self._driver.has("zeMemPutIpcHandle"):
            handle = ze_ipc_mem_handle_t.from_buffer_copy(payload.handle)
            self._driver.call("zeMemPutIpcHandle", self._context.handle, handle)

    def _take(self, payload: bytes) -> None:
        if not self._live[payload]:
            del self._live[payload]
            LevelZeroPayload.unpack(payload)
            raise InvalidArgument("this export is not of this provider, or was released already")
        self._live[payload] -= 1
        if not self._live[payload]:
            del self._live[payload]
