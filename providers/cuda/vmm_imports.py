"""Memory of other processes, chunk by chunk, mapped here in one piece."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from umfpy.errors import DriverError, InvalidArgument, IpcError, UmfpyError
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.vmm_ipc import VmmPayload
from umfpy.providers.host.later import Later


@dataclass
class _Mapping:
    """``length`` bytes of addresses at ``ptr``, of which the first ``mapped`` are mapped."""

    driver: CudaDriver
    ptr: int
    size: int
    length: int
    mapped: int = 0

    def unmap(self) -> None:
        """Take the memory away: cuMemUnmap.  Called again, it does nothing."""
        if self.mapped:
            self.driver.call("cuMemUnmap", self.ptr, self.mapped)
            self.mapped = 0

    def withdraw(self) -> None:
        """Take the memory away, and the addresses: cuMemAddressFree."""
        self.unmap()
        self.driver.call("cuMemAddressFree", self.ptr, self.length)


class VmmImports:
    """The open mappings of one provider; each open is one of its own.

    Parameters
    ----------
    access
        A CUmemAccessDesc for each device that gets at them.
    """

    def __init__(self, driver: CudaDriver, later: Later, access: list[Any]) -> None:
        self._driver = driver
        self._later = later
        self._access = access
        self._lock = threading.Lock()
        self._open: dict[int, _Mapping] = {}

    def __len__(self) -> int:
        return len(self._open)

    def open(self, payload: VmmPayload, fds: Sequence[int]) -> int:
        """Return where the chunks are mapped, one behind the other.

        cuMemAddressReserve, cuMemImportFromShareableHandle and cuMemMap for each chunk, and one
        cuMemSetAccess.

        Raises
        ------
        IpcError
            The driver does not take a descriptor for memory, or not of that size.
        OutOfMemoryError
            There are no addresses left.
        """
        call = self._driver.call
        try:
            base = int(call("cuMemAddressReserve", payload.length, 0, 0, 0))
        except DriverError as error:
            raise _refused(error) from error
        mapping = _Mapping(self._driver, base, payload.size, payload.length)
        try:
            for fd, (_, size) in zip(fds, payload.chunks, strict=True):
                self._map(mapping, fd, size)
            call("cuMemSetAccess", base, payload.length, self._access, len(self._access))
        except BaseException as error:
            self._later.attempt(mapping.withdraw)
            if isinstance(error, DriverError):
                raise _refused(error) from error
            raise
        with self._lock:
            self._open[base] = mapping
        return base

    def close(self, ptr: int, size: int) -> None:
        """Unmap what `open` returned; the device must be done with it.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes is open at `ptr`.
        DriverError
            cuMemUnmap failed; it is still open.
        """
        with self._lock:
            mapping = self._open.get(ptr)
            if mapping is None or mapping.size != size:
                raise InvalidArgument(f"no imported memory of {size} bytes at {ptr:#x}")
            del self._open[ptr]
        try:
            mapping.unmap()
        except UmfpyError:
            with self._lock:
                self._open[ptr] = mapping
            raise
        self._later.attempt(mapping.withdraw)

    def _map(self, mapping: _Mapping, fd: int, size: int) -> None:
        kind = self._driver.bindings.CUmemAllocationHandleType
        posix = kind.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        handle = int(self._driver.call("cuMemImportFromShareableHandle", fd, posix))
        try:
            self._driver.call("cuMemMap", mapping.ptr + mapping.mapped, size, 0, handle, 0)
            mapping.mapped += size
        finally:
            # The mapping keeps the memory.
            self._later.attempt(partial(self._driver.call, "cuMemRelease", handle))


def _refused(error: DriverError) -> IpcError:
    return IpcError(
        f"{error}; the memory was freed, its process ended, or this device cannot map it"
    )
