"""Device memory whose addresses and backing are managed apart."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from umfpy.arguments import check_device, check_flag, check_items
from umfpy.provider import Capability
from umfpy.providers.cuda.vmm_base import wait_for
from umfpy.providers.cuda.vmm_driver import CudaVmmDriver
from umfpy.providers.cuda.vmm_exchange import Exchange
from umfpy.providers.cuda.vmm_shared import SharedChunks
from umfpy.providers.cuda.vmm_support import (
    check_ability,
    check_peers,
    device_has,
    granularity,
    physical_properties,
)
from umfpy.providers.host.later import Later
from umfpy.providers.vmm.backing import Backing
from umfpy.providers.vmm.provider import APART, KEPT_PART, SPANS
from umfpy.providers.vmm.units import Units, check_chunk_size, check_reserve


class CudaVmmProvider(SharedChunks):
    """Device memory out of CUDA's virtual memory management: parts of it come and go.

    Addresses are reserved in large ranges (cuMemAddressReserve), and chunks of physical memory
    (cuMemCreate) mapped there (cuMemMap, cuMemSetAccess).  A chunk is what can be dropped, taken
    elsewhere and brought back; `chunks` has their boundaries.

    Parameters
    ----------
    device
        The device's ordinal, as CUDA_VISIBLE_DEVICES orders them.
    chunk_size
        Bytes of every chunk, as number or text: a power of two, at least the device's unit.  None
        takes about a quarter of each allocation, at least the unit and at most 1 GiB, and
        smaller ones for what is left over.
    reserve
        Bytes of addresses to reserve at once, as number or text; None for four times the
        device's memory.
    peers
        Ordinals of other devices that get access to all of it.
    shareable
        Whether other processes may open the memory, by file descriptors.

    Raises
    ------
    DriverUnavailable
        The binding, the driver library or a device is missing; the message says what to install.
    NotSupported
        The device has no virtual memory management, or a peer cannot reach it.
    InvalidArgument
        There is no such device or peer, or `chunk_size` is not possible.

    Notes
    -----
    The driver does not promise cleared memory, and what is kept for reuse is not cleared either:
    FRESH_ZERO is not announced; `commit` clears what it brings.  `free`, `decommit`, `dalloc`
    and `remap` wait for the work of the device's primary context first, as cuMemFree does; work
    of peers and of importers has to be done by then.
    """

    name = "cuda_vmm"
    driver = "cuda"
    capabilities = APART | Capability.IPC

    def __init__(
        self,
        device: int = 0,
        *,
        chunk_size: int | str | None = None,
        reserve: int | str | None = None,
        peers: Sequence[int] = (),
        shareable: bool = True,
    ) -> None:
        ordinals = check_items(peers, "peers", "ordinals of devices")
        self._peers = tuple(dict.fromkeys(check_device(peer, "a peer") for peer in ordinals))
        self._shareable = check_flag(shareable, "shareable")
        super().__init__(device)
        driver, later = self._driver, Later()
        rdma = device_has(driver, self._handle, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED")
        prop = physical_properties(driver, self.device, shareable=self._shareable, rdma=rdma)
        least = granularity(driver, prop, "MINIMUM")
        total = int(driver.call("cuDeviceTotalMem", self._handle))
        units = Units(least, check_chunk_size(chunk_size, least, total))
        self._recommended = granularity(driver, prop, "RECOMMENDED")
        if not self._shareable:
            self.capabilities = type(self).capabilities & ~Capability.IPC
        devices = [self.device, *(peer for peer in self._peers if peer != self.device)]
        self._exchange = Exchange(driver, later, devices)
        self._backing = Backing(
            CudaVmmDriver(driver, prop, devices),
            units,
            later,
            span=check_reserve(reserve, total * SPANS),
            keep_bytes=total // KEPT_PART,
            # Not a method of its own: a provider that is dropped must go at once.
            wait=partial(wait_for, driver, self._context),
        )
        self._closing.holdings.append(self._exchange.imports)
        self._closing.before(self._backing.close)
        self._enter()

    def _prepare(self) -> None:
        where = self._driver, self._handle
        what = "virtual memory management"
        check_ability(*where, "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED", what)
        check_peers(*where, self._peers)
        attribute = "HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED"
        self._shareable = self._shareable and device_has(*where, attribute)

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the bytes of most chunks of an allocation of `size`, and what the device likes.

        cuMemGetAllocationGranularity, recommended.
        """
        return max(self._recommended, super().recommended_granularity(size))
