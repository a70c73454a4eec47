"""Memory of the CUDA driver: of a device, pinned on the host, or managed."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Sequence
from typing import Any

from umfpy.errors import (
    DriverError,
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
    UmfpyError,
)
from umfpy.provider import Capability, Location, NativeError, Provider
from umfpy.providers.cuda.contents import copy_memory, fill_zero
from umfpy.providers.cuda.context import PrimaryContext, device_uuid, find_device
from umfpy.providers.cuda.driver import NOT_SUPPORTED, CudaDriver
from umfpy.providers.cuda.imports import CudaImports
from umfpy.providers.cuda.ipc import CudaPayload, handle_bytes
from umfpy.providers.cuda.kinds import KINDS
from umfpy.providers.cuda.properties import pointer_properties
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.pages import SYSTEM_PAGE
from umfpy.providers.host.pieces import Piece, Pieces
from umfpy.units import format_size

#: What cuMemAlloc cuts its small allocations out of, and aligns the large ones to.  Not promised,
#: so that every address is looked at; it only says when asking for exactly `size` is worth a try.
_LIKELY_ALIGNMENT = 2 << 20


class CudaProvider(Provider):
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
        self._kind = kind
        self._driver = driver = CudaDriver()
        self._ordinal = device
        self._handle = find_device(driver, device)
        self.memory_type = memory_type
        self.device = -1 if memory_type == "host" else device
        self.capabilities = kind.capabilities
        if memory_type == "managed" and _host_may_touch(driver, self._handle):
            self.capabilities |= Capability.HOST_ACCESS
        self._pieces = Pieces()
        self._imports = CudaImports(driver)
        self._granularities: dict[str, int] = {}
        self._closed = False
        self._abandoned: list[int] = []
        self._context = PrimaryContext(driver, self._handle)
        # A provider that is dropped without close() must not keep the context; one with live
        # memory must, because that would go with it.  At exit the driver cleans up by itself.
        finalizer = weakref.finalize(self, _drop_context, self._context, self._pieces)
        finalizer.atexit = False

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
            if self._closed:
                raise InvalidArgument("this CUDA provider is closed; make a new one")
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
        if self._closed:
            self._release_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the device's unit, cuMemGetAllocationGranularity MINIMUM; on the host the page."""
        return self._query_granularity("CU_MEM_ALLOC_GRANULARITY_MINIMUM")

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the device's best unit, cuMemGetAllocationGranularity RECOMMENDED."""
        return self._query_granularity("CU_MEM_ALLOC_GRANULARITY_RECOMMENDED")

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros: cuMemsetD8Async on `stream`, else done when the call returns."""
        with self._context:
            fill_zero(self._driver, ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy between addresses and host buffers, on `stream`, else done at return.

        A buffer of ordinary host memory may be reused at return even with a stream; of pinned
        memory it has to stay as it is until the stream gets there.
        """
        with self._context:
            copy_memory(self._driver, dst, src, size, stream)

    def synchronize(self) -> None:
        """Wait for all work of the primary context: cuCtxSynchronize."""
        with self._context:
            self._driver.call("cuCtxSynchronize")

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
        found = self._pieces.find(ptr)
        if found is None or found[0] != ptr or found[1].size != size:
            raise InvalidArgument(f"no CUDA allocation of {size} bytes starts at {ptr:#x}")
        base = found[1].origin
        with self._context:
            handle = self._driver.call("cuIpcGetMemHandle", base)
            uuid = device_uuid(self._driver, self._handle)
        return CudaPayload(uuid, handle_bytes(handle), ptr - base, size).pack()

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
        with self._context:
            own = device_uuid(self._driver, self._handle)
            if parsed.uuid != own:
                raise IpcError(f"the memory is on device {parsed.uuid}; this provider is on {own}")
            return self._imports.open(parsed)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned: cuIpcCloseMemHandle."""
        self._check_ipc()
        with self._context:
            self._imports.close(ptr, size)
        if self._closed:
            self._release_if_unused()

    def ipc_scope(self) -> str:
        """Return the device's UUID in hexadecimal: cuDeviceGetUuid."""
        return device_uuid(self._driver, self._handle)

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Return a provider on the device with that UUID, whatever its ordinal is here.

        Raises
        ------
        IpcError
            This process does not see it.
        """
        driver = CudaDriver()
        for ordinal in range(driver.call("cuDeviceGetCount")):
            if device_uuid(driver, driver.call("cuDeviceGet", ordinal)) == scope:
                return cls(ordinal)
        raise IpcError(f"this process sees no CUDA device {scope}; look at CUDA_VISIBLE_DEVICES")

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return the driver's pointer attributes: cuPointerGetAttributes; {} for foreign ones.

        ``memory_type``, ``context``, ``device``, ``base``, ``size``, ``buffer_id``, ``managed``.
        """
        with self._context:
            return pointer_properties(self._driver, ptr)

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of the device: cuMemGetInfo."""
        with self._context:
            return self._memory_info()

    def native_error(self) -> NativeError | None:
        """Return this thread's last failure, in the driver's words."""
        return self._driver.last_error()

    def live_count(self) -> int:
        """Return how many allocations there are: 0 when everything was freed."""
        return len(self._pieces)

    def close(self) -> None:
        """Release the primary context, as soon as nothing is allocated or opened any more."""
        self._closed = True
        self._release_if_unused()

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

    def _release_if_unused(self) -> None:
        if len(self._pieces) or len(self._imports):
            return
        if self._abandoned:
            with self._context:
                while self._abandoned:
                    self._driver.call(self._kind.give, self._abandoned[-1])
                    self._abandoned.pop()
        self._context.release()

    def _check_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise NotSupported(
                f"CUDA has no IPC for {self.memory_type} memory; use "
                'CudaProvider(memory_type="device")'
            )

    def _memory_info(self) -> tuple[int, int]:
        free, total = self._driver.call("cuMemGetInfo")
        return int(free), int(total)

    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        text = f"no {self.memory_type} memory for {size} bytes ({format_size(size)}): {error}"
        with contextlib.suppress(DriverError):
            free, total = self._memory_info()
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


def _drop_context(context: PrimaryContext, pieces: Pieces) -> None:
    if not len(pieces):
        # Nobody is there to be told, and a forked child has nothing to release.
        with contextlib.suppress(UmfpyError):
            context.release()
