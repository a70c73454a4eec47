"""A pool of the driver's: CUDA Driver API, "Stream Ordered Memory Allocator"."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.renewed import Renewed


@dataclass(frozen=True)
class DriverPoolStats:
    """What a driver's pool has, and had at most since its highs were reset; in bytes.

    ``reserved`` is taken from the device, ``used`` is given to programs.
    """

    reserved: int
    reserved_high: int
    used: int
    used_high: int


class DriverPool:
    """A CUmemoryPool.

    Parameters
    ----------
    handle
        The pool's, or what makes one: now, and again when one is needed after `rest`.
    owned
        Whether to destroy it in the end; one that is made is.
    """

    def __init__(self, driver: CudaDriver, handle: int | Callable[[], int], *, owned: bool) -> None:
        self._driver = driver
        self._lock = threading.Lock()
        self._fd = -1
        self._id = b""
        self._threshold: int | None = None
        self._renewable = callable(handle)
        make = handle if callable(handle) else lambda: handle
        self._pool = Renewed(partial(self._new, make), self._destroy if owned else _keep)
        _ = self.handle

    @classmethod
    def create(cls, driver: CudaDriver, ordinal: int, *, shareable: bool) -> DriverPool:
        """Return a new pool on a device: cuMemPoolCreate."""
        names = driver.bindings
        wanted = names.CUmemPoolProps()
        wanted.allocType = names.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = ordinal
        if shareable:
            wanted.handleTypes = posix_descriptor(driver)
        return cls(driver, lambda: int(driver.call("cuMemPoolCreate", wanted)), owned=True)

    @classmethod
    def default(cls, driver: CudaDriver, device: Any) -> DriverPool:
        """Return the device's default pool, which every program may use: cuDeviceGetDefaultMemPool.

        It cannot be shared.
        """
        return cls(driver, int(driver.call("cuDeviceGetDefaultMemPool", device)), owned=False)

    @property
    def handle(self) -> int:
        """The CUmemoryPool."""
        return self._pool.handle

    @property
    def id(self) -> bytes:
        """What tells this pool from all others, also from one that was made in its place."""
        _ = self.handle
        return self._id

    def set_release_threshold(self, size: int) -> None:
        """Keep up to `size` unused bytes when something is waited for; a new pool keeps none."""
        self._set(self.handle, "RELEASE_THRESHOLD", size)
        self._threshold = size

    def trim(self, keep_bytes: int) -> int:
        """Give unused memory back to the device until `keep_bytes` are left: cuMemPoolTrimTo.

        Returns the bytes that went.
        """
        before = self._get("RESERVED_MEM_CURRENT")
        self._driver.call("cuMemPoolTrimTo", self.handle, keep_bytes)
        return max(before - self._get("RESERVED_MEM_CURRENT"), 0)

    def stats(self) -> DriverPoolStats:
        """Return the pool's counters: cuMemPoolGetAttribute."""
        names = ("RESERVED_MEM_CURRENT", "RESERVED_MEM_HIGH", "USED_MEM_CURRENT", "USED_MEM_HIGH")
        return DriverPoolStats(*map(self._get, names))

    def reset_highs(self) -> None:
        """Let the highs start again from what is now."""
        self._set(self.handle, "RESERVED_MEM_HIGH", 0)
        self._set(self.handle, "USED_MEM_HIGH", 0)

    def descriptor(self) -> int:
        """Return a descriptor that stands for the pool, the same each time.

        cuMemPoolExportToShareableHandle.
        """
        handle = self.handle
        with self._lock:
            if self._fd < 0:
                what = handle, posix_descriptor(self._driver), 0
                self._fd = int(self._driver.call("cuMemPoolExportToShareableHandle", *what))
            return self._fd

    def rest(self) -> None:
        """Let go of a pool that was made, until it is needed again; as `close`.

        Nothing of it may be in use.
        """
        if self._renewable:
            self._drop_descriptor()
            self._pool.rest()

    def close(self) -> None:
        """Let go of the pool, once: cuMemPoolDestroy, if it is owned.

        Raises DriverError if the driver refuses; a later call tries again.
        """
        self._drop_descriptor()
        self._pool.close()

    def _drop_descriptor(self) -> None:
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1

    def _new(self, make: Callable[[], int]) -> int:
        handle = make()
        self._id = secrets.token_bytes(16)
        if self._threshold is not None:
            try:
                self._set(handle, "RELEASE_THRESHOLD", self._threshold)
            except BaseException:
                self._destroy(handle)
                raise
        return handle

    def _destroy(self, handle: int) -> None:
        self._driver.call("cuMemPoolDestroy", handle)

    def _get(self, attribute: str) -> int:
        which = self._attribute(attribute)
        return int(self._driver.call("cuMemPoolGetAttribute", self.handle, which))

    def _set(self, handle: int, attribute: str, value: int) -> None:
        number = self._driver.bindings.cuuint64_t(value)
        which = self._attribute(attribute)
        self._driver.call("cuMemPoolSetAttribute", handle, which, number)

    def _attribute(self, name: str) -> Any:
        return getattr(self._driver.bindings.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")


def _keep(_: int) -> None:
    """Do nothing: the pool is somebody else's to destroy."""


def posix_descriptor(driver: CudaDriver) -> Any:
    """Return the kind of shareable handle that is a file descriptor."""
    kinds = driver.bindings.CUmemAllocationHandleType
    return kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
