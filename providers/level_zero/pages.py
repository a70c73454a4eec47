"""The pages of virtual memory."""

from __future__ import annotations

import ctypes

from umfpy.errors import DriverError
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver


def page_size(driver: LevelZeroDriver, context: int, device: Device, size: int) -> int:
    """Return the page of virtual memory for a request, in bytes: zeVirtualMemQueryPageSize."""
    page = ctypes.c_size_t()
    where = context, device.handle
    driver.call("zeVirtualMemQueryPageSize", *where, max(size, 1), ctypes.byref(page))
    return check_page_size("zeVirtualMemQueryPageSize", page.value)


def check_page_size(call: str, size: int) -> int:
    """Return a page size that the driver has answered, if it is one; else raise DriverError."""
    if size < 1 or size & (size - 1):
        raise DriverError(call, 0, "ZE_RESULT_SUCCESS", f"a page cannot have {size} bytes")
    return size
