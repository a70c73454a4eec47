"""Memory of the CUDA driver: of a device, pinned on the host, or managed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from umfpy.errors import DriverError, InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.cuda.context import PrimaryContext
from umfpy.providers.cuda.driver import NOT_SUPPORTED, CudaDriver
from umfpy.providers.cuda.imports import CudaImports
from umfpy.providers.cuda.ipc import CudaPayload, handle_bytes
from umfpy.providers.cuda.kinds import KINDS
from umfpy.providers.cuda.vmm_base import CudaDeviceProvider
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.pages import SYSTEM_PAGE
from umfpy.providers.host.pieces import Piece
from umfpy.units import format_size

#: What cuMemAlloc cuts its small allocations out of, and aligns the large ones to.  Not promised,
#: so that every address is looked at; it only says when asking for exactly `size` is worth a try.
_LIKELY_ALIGNMENT = 2 << 20


class CudaProvider(CudaDeviceProvider):
    """Memory of the CUDA driver, through cuda-python.

    Parameters
    ----------
    device
        The device's ordinal, as CUDA_VISIBLE_DEVICES orders them.
    memory_type
        ``"device"`` (cuMemAlloc); ``"host"`` (cuMemHostAlloc: pinned, for all contexts, at one
        address for host and device); ``"managed"`` (cuMemAllocManaged, for all streams).

    Raises
    ------
    DriverUnavailable
        The binding, the driver library or a device is missing; the message says what to install.
    InvalidArgument
        There is no such device or memory type.

    Notes
    -----
    The device's primary context is retained until `close`, and until nothing is allocated any
    more.  Every call makes it current and gives the thread its own contexts back.  Calls may
    come from any thread.  In a child that was forked after CUDA had been initialised, all raise
    DriverUnavailable.
    """

    name = "cuda"
    #: CuPy and PyTorch count on 512; cuMemAlloc promises 256 and gives at least 512.
    granule = 512

    def __init__(self, device: int = 0, memory_type: str = "device") -> None:
        kind = KINDS.get(memory_type)
        if kind is None:
            raise InvalidArgument(f"memory_type is {memory_type!r}; use one of {', '.join(KINDS)}")
        super().__init__(device)
        self._kind = kind
        self._ordinal = device
        self.memory_type = memory_type
        self.device = -1 if memory_type == "host" else device
        self.capabilities = kind.capabilities
        if memory_type == "managed" and _host_may_touch(self._driver, self._handle):
            self.capabilities |= Capability.HOST_ACCESS
        self._imports = CudaImports(self._driver)
        self._granularities: dict[str, int] = {}
        self._abandoned: list[int] = []
        self._closing.holdings.append(self._imports)
        give = partial(self._driver.call, kind.give)
        self._closing.before(partial(_give_back, give, self._context, self._abandoned))

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes: cuMemAlloc, cuMemHostAlloc or cuMemAllocManaged.

        `alignment` may be any power of two.  Where the driver does not give it by itself, it is
        asked for ``size + alignment`` bytes.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            The message says what the device has.
        DriverError
            Whatever else the driver answered.
        """
        size, alignment = check_request(size, alignment, self.name)
        alignment = max(alignment, self.granule)
        with self._pieces.coming(), self._context:
            self._check_open()
            try:
                base, ptr = self._take_aligned(size, alignment)
            except OutOfMemoryError as error:
                raise self._out_of_memory(size, error) from error
            self._pieces.add(ptr, Piece(size, base))
        return ptr

    def free(self, ptr: int, size: int) -> None:
        """Give an allocation back: cuMemFree (which waits for the device) or cuMemFreeHost.

        From any thread, whatever context is current there.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`: a double free, a foreign or interior
            pointer.
        DriverError
            The driver refused; the allocation is still there.
        """
        with self._context, self._pieces.released(ptr, size) as piece:
            self._driver.call(self._kind.give, piece.origin)
        self._close_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the device's unit, cuMemGetAllocationGranularity MINIMUM; on the host the page."""
        return self._query_granularity("CU_MEM_ALLOC_GRANULARITY_MINIMUM")

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the device's best unit, cuMemGetAllocationGranularity RECOMMENDED."""
        return self._query_granularity("CU_MEM_ALLOC_GRANULARITY_RECOMMENDED")

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to open the allocation: cuIpcGetMemHandle.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`.
        NotSupported
            Pinned and managed memory have no handles in CUDA.
        """
        self._check_ipc()
        base = self._pieces.at(ptr, size, "CUDA allocation").origin
        with self._context:
            handle = self._driver.call("cuIpcGetMemHandle", base)
        return CudaPayload(self.ipc_scope(), handle_bytes(handle), ptr - base, size).pack()

    def ipc_release(self, payload: bytes) -> None:
        """Nothing to give back: CUDA's handles live as long as the allocation."""
        self._check_ipc()
        CudaPayload.unpack(payload)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported allocation."""
        return CudaPayload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's allocation: cuIpcOpenMemHandle with lazy peer access.

        Raises
        ------
        IpcError
            The payload is of another device, of this very process, or its memory is gone.
        NotSupported
            This provider is one of pinned or managed memory.
        """
        self._check_ipc()
        parsed = CudaPayload.unpack(payload)
        self._check_device(parsed.uuid)
        with self._context:
            return self._imports.open(parsed)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned: cuIpcCloseMemHandle."""
        self._check_ipc()
        with self._context:
            self._imports.close(ptr, size)
        self._close_if_unused()

    def _take_aligned(self, size: int, alignment: int) -> tuple[int, int]:
        """Return native base and aligned address; the context is current."""
        if alignment <= self.granule or alignment <= _LIKELY_ALIGNMENT <= size:
            base = self._take(size)
            if not base % alignment:
                return base, base
            self._abandon(base)
        base = self._take(size + alignment)
        return base, round_up(base, alignment)

    def _take(self, size: int) -> int:
        return int(self._driver.call(self._kind.take, size, *self._kind.arguments))

    def _abandon(self, base: int) -> None:
        """Give back what turned out to lie at the wrong address; if need be, at close."""
        try:
            self._driver.call(self._kind.give, base)
        except DriverError:
            self._abandoned.append(base)

    def _check_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise NotSupported(
                f"CUDA has no IPC for {self.memory_type} memory; use "
                'CudaProvider(memory_type="device")'
            )

    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        text = f"no {self.memory_type} memory for {size} bytes ({format_size(size)}): {error}"
        with contextlib.suppress(DriverError):
            free, total = self.memory_info()
            text += f"; CUDA device {self._ordinal} has {free} of {total} bytes free"
        return OutOfMemoryError(text, requested=size, provider=self.name)

    def _query_granularity(self, option: str) -> int:
        if self.memory_type == "host":
            return SYSTEM_PAGE
        if option not in self._granularities:
            with self._context:
                self._granularities[option] = _granularity(self._driver, self._ordinal, option)
        return self._granularities[option]


def _granularity(driver: CudaDriver, ordinal: int, option: str) -> int:
    names = driver.bindings
    prop = names.CUmemAllocationProp()
    prop.type = names.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = names.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = ordinal
    which = getattr(names.CUmemAllocationGranularity_flags, option)
    try:
        return int(driver.call("cuMemGetAllocationGranularity", prop, which))
    except DriverError as error:
        if error.code != NOT_SUPPORTED:
            raise
        # Devices without virtual memory management still take memory in such blocks.
        return _LIKELY_ALIGNMENT


def _host_may_touch(driver: CudaDriver, device: Any) -> bool:
    """Return whether the host may touch managed memory at any time, also beside kernels."""
    names = driver.bindings.CUdevice_attribute
    attribute = names.CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS
    return bool(driver.call("cuDeviceGetAttribute", attribute, device))


def _give_back(give: Callable[[int], Any], context: PrimaryContext, bases: list[int]) -> None:
    """Give back what the driver would not take before."""
    if bases:
        with context:
            while bases:
                give(bases[-1])
                bases.pop()
