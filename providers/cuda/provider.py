"""Memory of the CUDA driver: of a device, pinned on the host, or managed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from umfpy.arguments import check_choice
from umfpy.errors import DriverError, NotSupported, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.cuda.context import PrimaryContext
from umfpy.providers.cuda.driver import NOT_SUPPORTED, CudaDriver
from umfpy.providers.cuda.imports import CudaImports
from umfpy.providers.cuda.ipc import HANDLE_SIZE, CudaPayload
from umfpy.providers.cuda.kinds import KINDS
from umfpy.providers.cuda.native import LIKELY_ALIGNMENT, NativeProvider
from umfpy.providers.cuda.structs import struct_bytes
from umfpy.providers.cuda.vmm_support import device_has, granularity, physical_properties
from umfpy.providers.host.pages import SYSTEM_PAGE
from umfpy.units import format_size


class CudaProvider(NativeProvider):
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
        self.memory_type = check_choice(memory_type, KINDS, "memory_type")
        super().__init__(device)
        self._kind = kind = KINDS[memory_type]
        self._ordinal = self.device
        if memory_type == "host":
            self.device = -1
        self.capabilities = kind.capabilities
        # At any time, that is, also beside kernels.
        attribute = "CONCURRENT_MANAGED_ACCESS"
        if memory_type == "managed" and device_has(self._driver, self._handle, attribute):
            self.capabilities |= Capability.HOST_ACCESS
        self._imports = CudaImports(self._driver)
        self._granularities: dict[str, int] = {}
        self._abandoned: list[int] = []
        self._closing.holdings.append(self._imports)
        give = partial(self._driver.call, kind.give)
        self._settle = partial(_give_back, give, self._context, self._abandoned)
        self._closing.before(self._settle)
        self._enter()

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
        return self._alloc(size, alignment)

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
        return self._query_granularity("MINIMUM")

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the device's best unit, cuMemGetAllocationGranularity RECOMMENDED."""
        return self._query_granularity("RECOMMENDED")

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
        data = struct_bytes(handle, HANDLE_SIZE)
        return CudaPayload(self.ipc_scope(), data, ptr - base, size).pack()

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

    def _take(self, size: int, **how: Any) -> int:
        with self._context:
            return int(self._driver.call(self._kind.take, size, *self._kind.arguments))

    def _abandon(self, base: int) -> None:
        try:
            with self._context:
                self._driver.call(self._kind.give, base)
        except DriverError:
            self._abandoned.append(base)

    def _rest(self) -> None:
        self._settle()

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
                self._granularities[option] = _block_size(self._driver, self._ordinal, option)
        return self._granularities[option]


def _block_size(driver: CudaDriver, ordinal: int, option: str) -> int:
    prop = physical_properties(driver, ordinal, shareable=False, rdma=False)
    try:
        return granularity(driver, prop, option)
    except DriverError as error:
        if error.code != NOT_SUPPORTED:
            raise
        # Devices without virtual memory management still take memory in such blocks.
        return LIKELY_ALIGNMENT


def _give_back(give: Callable[[int], Any], context: PrimaryContext, bases: list[int]) -> None:
    """Give back what the driver would not take before."""
    if bases:
        with context:
            while bases:
                give(bases[-1])
                bases.pop()
