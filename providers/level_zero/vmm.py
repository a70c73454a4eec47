"""Device memory whose addresses and backing are managed apart."""

from __future__ import annotations

import contextlib
from typing import Any

from umfpy.errors import InvalidArgument, UmfpyError
from umfpy.providers.level_zero.base import LevelZeroBase
from umfpy.providers.level_zero.vmm_driver import LevelZeroVmmDriver
from umfpy.providers.vmm.backing import Backing
from umfpy.providers.vmm.provider import APART, KEPT_PART, SPANS, VmmProvider
from umfpy.providers.vmm.units import LARGEST, Units, check_chunk_size, check_reserve


class LevelZeroVmmProvider(VmmProvider, LevelZeroBase):
    """Device memory out of Level Zero's virtual memory: parts of it come and go.

    Addresses are reserved in large ranges (zeVirtualMemReserve), and chunks of physical memory
    (zePhysicalMemCreate) mapped there (zeVirtualMemMap).  A chunk is what can be dropped, taken
    elsewhere and brought back; `chunks` has their boundaries.

    Parameters
    ----------
    device
        The device's index through all drivers, its UUID in hexadecimal, or its name.
    chunk_size
        Bytes of every chunk, as number or text: a power of two, at least the device's smallest
        page.  None takes about a quarter of each allocation, at least the page that the driver
        has for large requests and at most 1 GiB, and smaller ones for what is left over.
    reserve
        Bytes of addresses to reserve at once, as number or text; None for four times the
        device's memory.
    context
        As for `LevelZeroProvider`.

    Raises
    ------
    DriverUnavailable, InvalidArgument
        As for `LevelZeroProvider`; or `chunk_size` is not possible.

    Notes
    -----
    What is kept for reuse is not cleared: FRESH_ZERO is not announced; `commit` clears what it
    brings.  `free`, `decommit`, `dalloc` and `remap` do not wait: the device has to be done with
    the memory, as for zeMemFree.  Level Zero's core has no handles of physical memory for other
    processes, and so no IPC.
    """

    name = "level_zero_vmm"
    driver = "level_zero"
    memory_type = "device"
    capabilities = APART

    def __init__(
        self,
        device: int | str = 0,
        *,
        chunk_size: int | str | None = None,
        reserve: int | str | None = None,
        context: int | None = None,
    ) -> None:
        if device is None:
            raise InvalidArgument("device memory needs a device: device must not be None")
        super().__init__(device, context, 0)
        self.device = self._device.index
        try:
            total = self._total_memory()
            units = self._units(chunk_size, total)
            self._backing = Backing(
                LevelZeroVmmDriver(self._driver, self._context, self._device),
                units,
                self._later,
                span=check_reserve(reserve, total * SPANS),
                keep_bytes=total // KEPT_PART,
                wait=lambda: None,
            )
        except BaseException:
            with contextlib.suppress(UmfpyError):
                self._release()
            raise
        self._release.before(self._backing.close)
        self._enter()

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return what is known of an address; {} for foreign ones.

        Inside of a piece: ``base``, ``size``, ``memory_type``, ``committed``, ``page_size`` (the
        unit), ``device`` and ``context``.  Else as `LevelZeroProvider.properties`.
        """
        found = super().properties(ptr)
        return {**found, "context": self._context.handle} if found else {}

    def _units(self, chunk_size: int | str | None, total: int) -> Units:
        """Return the sizes of chunks: zeVirtualMemQueryPageSize."""
        fixed = check_chunk_size(chunk_size, self._page_size(1), total)
        if fixed:
            page = self._page_size(fixed)
            return Units(page, check_chunk_size(fixed, page, total))
        page, largest = self._recommended_page(0), LARGEST
        while self._page_size(largest) > page:
            largest //= 2
        return Units(page, None, largest)
