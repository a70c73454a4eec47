"""CUDA's virtual memory management, as `umfpy.providers.vmm` wants it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from umfpy.providers.cuda.driver import CudaDriver


class CudaVmmDriver:
    """The calls for memory of one device, with access for some.

    Parameters
    ----------
    properties
        A CUmemAllocationProp: which device, and how the memory may be shared.
    devices
        Ordinals of those that get access.
    """

    joins = True

    def __init__(self, driver: CudaDriver, properties: Any, devices: Sequence[int]) -> None:
        self._driver = driver
        self._properties = properties
        self._access = access_of(driver, devices, "READWRITE")
        self._no_access = access_of(driver, devices, "NONE")

    def reserve(self, size: int) -> tuple[int, int]:
        """Return address and bytes: cuMemAddressReserve, aligned to the device's unit."""
        return int(self._driver.call("cuMemAddressReserve", size, 0, 0, 0)), size

    def unreserve(self, base: int, size: int) -> None:
        """Give addresses back: cuMemAddressFree."""
        self._driver.call("cuMemAddressFree", base, size)

    def create(self, size: int) -> int:
        """Return a handle: cuMemCreate."""
        return int(self._driver.call("cuMemCreate", size, self._properties, 0))

    def release(self, handle: int) -> None:
        """Give a handle back: cuMemRelease."""
        self._driver.call("cuMemRelease", handle)

    def map(self, ptr: int, size: int, handle: int, *, accessible: bool) -> bool:
        """Put memory behind addresses, where nobody may access it yet: cuMemMap."""
        self._driver.call("cuMemMap", ptr, size, 0, handle, 0)
        return False

    def unmap(self, ptr: int, size: int) -> None:
        """Take memory away: cuMemUnmap."""
        self._driver.call("cuMemUnmap", ptr, size)

    def set_access(self, ptr: int, size: int, *, accessible: bool) -> None:
        """Let the devices at memory, or nobody: cuMemSetAccess."""
        access = self._access if accessible else self._no_access
        self._driver.call("cuMemSetAccess", ptr, size, access, len(access))


def access_of(driver: CudaDriver, devices: Sequence[int], protection: str) -> list[Any]:
    """Return a CUmemAccessDesc for each device; `protection` is NONE, READ or READWRITE."""
    names = driver.bindings
    found = []
    for ordinal in devices:
        one = names.CUmemAccessDesc()
        one.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        one.location.id = ordinal
        one.flags = getattr(names.CUmemAccess_flags, f"CU_MEM_ACCESS_FLAGS_PROT_{protection}")
        found.append(one)
    return found
