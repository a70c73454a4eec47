"""Level Zero's virtual memory, as `umfpy.providers.vmm` wants it."""

from __future__ import annotations

from umfpy.errors import DriverError, OutOfMemoryError
from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.system import (
    MAP_ANONYMOUS,
    MAP_NORESERVE,
    MAP_PRIVATE,
    PROT_NONE,
    System,
)
from umfpy.providers.level_zero.constants import Access, Result
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.pages import page_size
from umfpy.providers.level_zero.structs import ze_physical_mem_desc_t

_READ_WRITE = Access.ZE_MEMORY_ACCESS_ATTRIBUTE_READWRITE
_NONE = Access.ZE_MEMORY_ACCESS_ATTRIBUTE_NONE


class LevelZeroVmmDriver:
    """The calls for memory of one device, in one context.

    Drivers find a mapping by its start, and take it away or change its access as a whole: each
    chunk has calls of its own.
    """

    joins = False

    def __init__(self, driver: LevelZeroDriver, context: Context, device: Device) -> None:
        self._driver = driver
        self._context = context
        self._device = device
        self._system = System("level_zero")

    def reserve(self, size: int) -> tuple[int, int]:
        """Return address and bytes, in whole pages of a request of that size.

        zeVirtualMemReserve, always at a proposed address.
        """
        page = page_size(self._driver, self._context.handle, self._device, size)
        length = round_up(size, page)
        where = self._context.handle, _vacant(self._system, length, page), length
        try:
            base = self._driver.make("zeVirtualMemReserve", *where)
        except DriverError as error:
            if error.code != Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE:
                raise
            raise OutOfMemoryError(f"{length} bytes of addresses: {error}") from error
        if base % page:
            self.unreserve(base, length)
            raise DriverError(
                "zeVirtualMemReserve",
                0,
                Result.ZE_RESULT_SUCCESS.name,
                f"{base:#x} is no multiple of the page, {page} bytes",
            )
        return base, length

    def unreserve(self, base: int, size: int) -> None:
        """Give addresses back: zeVirtualMemFree."""
        self._driver.call("zeVirtualMemFree", self._context.handle, base, size)

    def create(self, size: int) -> int:
        """Return a handle: zePhysicalMemCreate."""
        description = ze_physical_mem_desc_t(size=size)
        where = self._context.handle, self._device.handle
        return self._driver.make("zePhysicalMemCreate", *where, description)

    def release(self, handle: int) -> None:
        """Give a handle back: zePhysicalMemDestroy."""
        self._driver.call("zePhysicalMemDestroy", self._context.handle, handle)

    def map(self, ptr: int, size: int, handle: int, *, accessible: bool) -> bool:
        """Put memory behind addresses: zeVirtualMemMap, which gives access as well."""
        access = _READ_WRITE if accessible else _NONE
        self._driver.call("zeVirtualMemMap", self._context.handle, ptr, size, handle, 0, access)
        return accessible

    def unmap(self, ptr: int, size: int) -> None:
        """Take memory away: zeVirtualMemUnmap."""
        self._driver.call("zeVirtualMemUnmap", self._context.handle, ptr, size)

    def set_access(self, ptr: int, size: int, *, accessible: bool) -> None:
        """Let the device at memory, or nobody: zeVirtualMemSetAccessAttribute."""
        access = _READ_WRITE if accessible else _NONE
        place = self._context.handle, ptr, size
        self._driver.call("zeVirtualMemSetAccessAttribute", *place, access)


def _vacant(system: System, length: int, alignment: int) -> int:
    """Return an aligned address where nothing is now: a proposal, which a driver need not take.

    It may be null according to the text of the specification, but the list of results below it,
    and so the validation layer, takes null for an error.
    """
    flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
    total = length + alignment
    start = system.call("mmap", None, total, PROT_NONE, flags, -1, 0)
    system.call("munmap", start, total)
    return round_up(start, alignment)
