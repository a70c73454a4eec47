"""A pool of the driver's: CUDA Driver API, "Stream Ordered Memory Allocator"."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

from umfpy.providers.cuda.driver import CudaDriver


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
        The pool's.
    owned
        Whether to destroy it in the end.
    """

    def __init__(self, driver: CudaDriver, handle: int, *, owned: bool) -> None:
        self._driver = driver
        self._owned = owned
        self._lock = threading.Lock()
        self._fd = -1
        self._alive = True
        self.handle = handle

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
        return cls(driver, int(driver.call("cuMemPoolCreate", wanted)), owned=True)

    @classmethod
    def default(cls, driver: CudaDriver, device: Any) -> DriverPool:
        """Return the device's default pool, which every program may use: cuDeviceGetDefaultMemPool.

        It cannot be shared.
        """
        return cls(driver, int(driver.call("cuDeviceGetDefaultMemPool", device)), owned=False)

    def set_release_threshold(self, size: int) -> None:
        """Keep up to `size` unused bytes when something is waited for; a new pool keeps none."""
        self._set("RELEASE_THRESHOLD", size)

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
        self._set("RESERVED_MEM_HIGH", 0)
        self._set("USED_MEM_HIGH", 0)

    def descriptor(self) -> int:
        """Return a descriptor that stands for the pool, the same each time.

        cuMemPoolExportToShareableHandle.
        """
        with self._lock:
            if self._fd < 0:
                kind = posix_descriptor(self._driver)
                what = self.handle, kind, 0
                self._fd = int(self._driver.call("cuMemPoolExportToShareableHandle", *what))
            return self._fd

    def close(self) -> None:
        """Let go of the pool, once: cuMemPoolDestroy, if it is owned.

        Raises DriverError if the driver refuses; a later call tries again.
        """
        with self._lock:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
            if self._owned and self._alive:
                self._driver.call("cuMemPoolDestroy", self.handle)
            self._alive = False

    def _get(self, attribute: str) -> int:
        which = self._attribute(attribute)
        return int(self._driver.call("cuMemPoolGetAttribute", self.handle, which))

    def _set(self, attribute: str, value: int) -> None:
        number = self._driver.bindings.cuuint64_t(value)
        which = self._attribute(attribute)
        self._driver.call("cuMemPoolSetAttribute", self.handle, which, number)

    def _attribute(self, name: str) -> Any:
        return getattr(self._driver.bindings.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")


def posix_descriptor(driver: CudaDriver) -> Any:
    """Return the kind of shareable handle that is a file descriptor."""
    kinds = driver.bindings.CUmemAllocationHandleType
    return kinds.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
