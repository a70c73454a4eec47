"""Memory out of pools of other processes."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass
from functools import partial

from umfpy.errors import DriverError, InvalidArgument, IpcError, UmfpyError
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.pooled_driver import DriverPool, posix_descriptor
from umfpy.providers.cuda.pooled_ipc import PooledPayload
from umfpy.providers.cuda.structs import filled
from umfpy.providers.host.later import Later


@dataclass
class _Imported:
    """A pool of another process, and how many pointers out of it are open."""

    pool: DriverPool
    opens: int = 0


class PooledImports:
    """The open pointers of one provider, and the pools that they are out of.

    A pool is imported once, however many pointers are, and let go with the last one.
    """

    def __init__(self, driver: CudaDriver, later: Later) -> None:
        self._driver = driver
        self._later = later
        self._lock = threading.Lock()
        self._pools: dict[bytes, _Imported] = {}
        self._open: dict[tuple[int, int], tuple[int, bytes]] = {}  # (address, size): base, pool
        self._opens: Counter[tuple[int, int]] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, payload: PooledPayload, pool_fd: int) -> int:
        """Return the address of another process's memory here.

        cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer.

        Raises
        ------
        IpcError
            The driver does not open the pool or the pointer.
        """
        with self._lock:
            try:
                imported = self._pools.get(payload.pool_id) or self._import(pool_fd)
            except DriverError as error:
                raise _refused(error) from error
            self._pools[payload.pool_id] = imported
            try:
                empty = self._driver.bindings.CUmemPoolPtrExportData()
                pointer = filled(empty, payload.pointer)
                what = imported.pool.handle, pointer
                base = int(self._driver.call("cuMemPoolImportPointer", *what))
            except UmfpyError as error:
                self._leave(payload.pool_id)
                if isinstance(error, DriverError):
                    raise _refused(error) from error
                raise
            key = base + payload.offset, payload.size
            imported.opens += 1
            self._open[key] = base, payload.pool_id
            self._opens[key] += 1
        return key[0]

    def close(self, ptr: int, size: int, stream: int) -> None:
        """Give one open back: cuMemFreeAsync, which in an importer only closes.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes is open at `ptr`.
        DriverError
            The driver refused; it is still open.
        """
        key = ptr, size
        with self._lock:
            if key not in self._open:
                raise InvalidArgument(f"no imported memory of {size} bytes at {ptr:#x}")
            base, pool_id = self._open[key]
            self._driver.call("cuMemFreeAsync", base, stream)
            self._opens[key] -= 1
            if not self._opens[key]:
                del self._opens[key], self._open[key]
            self._pools[pool_id].opens -= 1
            self._leave(pool_id)

    def _import(self, fd: int) -> _Imported:
        what = fd, posix_descriptor(self._driver), 0
        handle = int(self._driver.call("cuMemPoolImportFromShareableHandle", *what))
        return _Imported(DriverPool(self._driver, handle, owned=True))

    def _leave(self, pool_id: bytes) -> None:
        """Let a pool go out of which nothing is open."""
        if not self._pools[pool_id].opens:
            self._later.attempt(partial(self._pools.pop(pool_id).pool.close))


def _refused(error: DriverError) -> IpcError:
    return IpcError(
        f"{error}; the memory was freed, its process ended, or the two processes do not see the "
        "same device"
    )
