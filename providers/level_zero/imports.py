"""Level Zero memory of other processes, mapped here."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from umfpy.errors import DriverError, IpcError
from umfpy.providers.host.foreign import duplicate, fetch_descriptor
from umfpy.providers.host.later import Later
from umfpy.providers.host.opened import Opened
from umfpy.providers.host.system import System
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.ipc import LevelZeroPayload
from umfpy.providers.level_zero.properties import address_range
from umfpy.providers.level_zero.structs import ze_ipc_mem_handle_t


class LevelZeroImports:
    """The open mappings of one provider.

    Each open is a mapping of its own, at an address of its own (Core API, zeMemOpenIpcHandle).
    """

    def __init__(
        self, driver: LevelZeroDriver, context: Context, device: Device, later: Later
    ) -> None:
        self._driver = driver
        self._later = later
        self._context = context
        self._device = device
        self._system = System("level_zero")
        self._opened = Opened()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, payload: LevelZeroPayload, descriptors: Sequence[int]) -> int:
        """Return the address of another process's allocation here: zeMemOpenIpcHandle.

        Raises
        ------
        IpcError
            The descriptor cannot be had, or is of another file by now; the driver does not open
            the handle; or it is of less memory than the payload says.
        """
        with self._own_handle(payload, descriptors) as data:
            handle = ze_ipc_mem_handle_t.from_buffer_copy(data)
            name = "zeMemOpenIpcHandle"
            try:
                base = self._driver.make(name, self._context.handle, self._device.handle, handle, 0)
            except DriverError as error:
                raise IpcError(
                    f"{error}; the allocation was freed, its process ended, or the two processes "
                    "do not see the same device"
                ) from error
        try:
            self._check_size(base, payload)
        except BaseException:
            close = partial(self._driver.call, "zeMemCloseIpcHandle", self._context.handle, base)
            self._later.attempt(close)
            raise
        ptr = base + payload.offset
        self._opened.enter(ptr, payload.size, base)
        return ptr

    def close(self, ptr: int, size: int) -> None:
        """Give an open back: zeMemCloseIpcHandle.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes is open at `ptr`.
        """
        with self._opened.leaving(ptr, size) as base:
            self._driver.call("zeMemCloseIpcHandle", self._context.handle, base)

    @contextmanager
    def _own_handle(self, payload: LevelZeroPayload, descriptors: Sequence[int]) -> Iterator[bytes]:
        """Yield the handle with a descriptor of this process in it, which is closed afterwards.

        The driver keeps what it needs of it.
        """
        if payload.fd < 0:
            yield payload.handle
            return
        if len(descriptors) > 1:
            raise IpcError(f"{len(descriptors)} descriptors came with a handle that has one")
        fd = duplicate(descriptors[0]) if descriptors else fetch_descriptor(self._system, payload)
        try:
            payload.check_file(fd)
            yield payload.with_descriptor(fd)
        finally:
            os.close(fd)

    def _check_size(self, base: int, payload: LevelZeroPayload) -> None:
        """Raise IpcError if the mapping is smaller than what is meant: zeMemGetAddressRange."""
        try:
            start, size = address_range(self._driver, self._context.handle, base)
        except DriverError:
            # A driver that does not answer for imported memory leaves nothing to compare with.
            return
        if start + size < base + payload.offset + payload.size:
            raise IpcError(
                f"the handle asks for {payload.size} bytes at {payload.offset}, beyond what was "
                "exported"
            )
