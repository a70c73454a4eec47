"""What the Level Zero driver knows of an address."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from umfpy.providers.level_zero.constants import MEMORY_TYPES
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import ze_memory_allocation_properties_t


@dataclass(frozen=True)
class AllocationProperties:
    """``ze_memory_allocation_properties_t``, with the handle of the device, 0 for none."""

    memory_type: str
    id: int
    page_size: int
    device: int


def allocation_properties(
    driver: LevelZeroDriver, context: int, ptr: int
) -> AllocationProperties | None:
    """Return the properties of an address, None for foreign ones: zeMemGetAllocProperties."""
    if not ptr:
        return None
    found, device = ze_memory_allocation_properties_t(), ctypes.c_void_p()
    name = "zeMemGetAllocProperties"
    driver.call(name, context, ptr, ctypes.byref(found), ctypes.byref(device))
    kind = MEMORY_TYPES.get(found.type)
    if kind is None:
        return None
    return AllocationProperties(kind, found.id, found.pageSize, device.value or 0)


def address_range(driver: LevelZeroDriver, context: int, ptr: int) -> tuple[int, int]:
    """Return base and bytes of the allocation around an address: zeMemGetAddressRange."""
    base, size = ctypes.c_void_p(), ctypes.c_size_t()
    driver.call("zeMemGetAddressRange", context, ptr, ctypes.byref(base), ctypes.byref(size))
    return base.value or 0, size.value
