"""Memory of Level Zero: of a device, of the host, or shared between them."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import partial

from umfpy.arguments import check_items, check_number
from umfpy.errors import (
    DriverError,
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
    UmfpyError,
)
from umfpy.provider import Capability, Provider
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.pieces import Piece
from umfpy.providers.level_zero.base import LevelZeroBase
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.devices import all_devices
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.exports import LevelZeroExports
from umfpy.providers.level_zero.freeing import FreePolicy
from umfpy.providers.level_zero.imports import LevelZeroImports
from umfpy.providers.level_zero.ipc import LevelZeroPayload
from umfpy.providers.level_zero.kinds import Source, check_kind
from umfpy.providers.level_zero.pages import check_page_size
from umfpy.providers.level_zero.properties import allocation_properties
from umfpy.providers.level_zero.residency import Residency


class LevelZeroProvider(LevelZeroBase):
    """Memory of a Level Zero driver, through Intel's loader.

    Parameters
    ----------
    device
        The device's index through all drivers, its UUID in hexadecimal, or its name.  For host
        memory it says whose driver, and which device zeroes and copies; None is the first one.
    memory_type
        ``"device"`` (zeMemAllocDevice); ``"host"`` (zeMemAllocHost: on the host, for all devices
        of the driver); ``"shared"`` (zeMemAllocShared: moves between the host and the device).
    ordinal
        Which of the device's memories (zeDeviceGetMemoryProperties).
    resident_devices
        Further devices, as for `device`, that every allocation is made resident on.
    free_policy
        ``"default"`` (zeMemFree: who frees sees to it that no device uses the memory),
        ``"blocking"`` (waits until none does) or ``"deferred"`` (returns at once; the memory
        goes when none does any more).
    context
        A ``ze_context_handle_t`` to allocate in, which stays the caller's; None for one that all
        such providers of this process share.  Kernels have to run in the same context.

    Raises
    ------
    DriverUnavailable
        The loader, a driver or a device is missing; the message says what to install.
    InvalidArgument
        There is no such device, memory or type; a device is missing, twice there or superfluous.
    NotSupported
        The driver does not know the free policy.

    Notes
    -----
    Calls may come from any thread.  In a child that was forked after Level Zero had been
    initialised, all raise DriverUnavailable.
    """

    name = "level_zero"

    def __init__(
        self,
        device: int | str | None = 0,
        memory_type: str = "device",
        *,
        ordinal: int = 0,
        resident_devices: Sequence[int | str] = (),
        free_policy: str = "default",
        context: int | None = None,
    ) -> None:
        self.capabilities = check_kind(memory_type)
        on_device = memory_type != "host"
        if on_device and device is None:
            raise InvalidArgument(f"{memory_type} memory needs a device")
        check_number(ordinal, "ordinal")
        others = check_items(resident_devices, "resident_devices", "devices")
        super().__init__(device, context, ordinal)
        self.memory_type = memory_type
        self.device = self._device.index if on_device else -1
        self._page: int | None = None
        try:
            self._check_ordinal(ordinal)
            held = self._context
            self._free_policy = FreePolicy(self._driver, self._device, free_policy)
            self._source = Source(self._driver, held, self._device, memory_type, ordinal)
            self._exports = LevelZeroExports(self._driver, held, self._device.uuid)
            self._imports = LevelZeroImports(self._driver, held, self._device, self._later)
            self._holdings.append(self._imports)
            self._residency = Residency(self._driver, held, self._device, at_home=on_device)
            for each in others:
                self.add_resident_device(each)
        except BaseException:
            with contextlib.suppress(UmfpyError):
                self._release()
            raise
        self._enter()

    @property
    def resident_devices(self) -> tuple[int, ...]:
        """The indices of the further devices that the memory is resident on."""
        return self._residency.devices()

    def add_resident_device(self, device: int | str) -> None:
        """Make all allocations, those to come as well, resident on one more device.

        zeContextMakeMemoryResident.

        Raises
        ------
        InvalidArgument
            There is no such device, or the memory is there already.
        DriverError, OutOfMemoryError
            The driver refused for one allocation; nothing has changed.
        """
        self._residency.add(self._find_device(device))

    def remove_resident_device(self, device: int | str) -> None:
        """Evict all allocations from a device, and put no more there: zeContextEvictMemory.

        Raises
        ------
        InvalidArgument
            The device was not added.
        DriverError, OutOfMemoryError
            The driver refused for one allocation; nothing has changed.
        """
        self._residency.remove(self._find_device(device))

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes: zeMemAllocDevice, ...Host or ...Shared.

        `alignment` may be any power of two.  Where the driver does not know it, it is asked for
        ``size + alignment`` bytes.  The memory is resident on `resident_devices`, or not there.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            The message says whether the device or the host has no more, and what there is.
        DriverError
            Whatever else the driver answered.
        """
        size, alignment = check_request(size, alignment, self.name)
        with self._pieces.coming(), self._residency.steady():
            self._check_open()
            base, ptr = self._take_aligned(size, max(alignment, self.granule))
            try:
                self._residency.settle(base, ptr - base + size)
            except UmfpyError:
                self._abandon(base)
                raise
            self._pieces.add(ptr, Piece(size, base))
        return ptr

    def free(self, ptr: int, size: int) -> None:
        """Give an allocation back: zeMemFree, or zeMemFreeExt with the free policy.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`: a double free, a foreign or interior
            pointer.
        DriverError
            The driver refused; the allocation is still there.
        """
        with self._pieces.released(ptr, size) as piece, self._residency.leaving(piece.origin):
            self._free_policy.free(self._context.handle, piece.origin)
        self._close_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the page size of this memory: zeMemGetAllocProperties of a small allocation."""
        if self._page is None:
            base = self._source.take(1, self.granule)
            try:
                found = allocation_properties(self._driver, self._context.handle, base)
                page = found.page_size if found else 0
                self._page = check_page_size("zeMemGetAllocProperties", page)
            finally:
                self._abandon(base)
        return self._page

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the page that virtual memory of that size has: zeVirtualMemQueryPageSize.

        Without a size the largest one; on the host the page of an allocation itself.
        """
        page = self.granularity(size)
        return page if self.memory_type == "host" else max(page, self._recommended_page(size))

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to open the allocation: zeMemGetIpcHandle.

        The handle holds a file descriptor of this process, which lives as long as the memory.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`.
        NotSupported
            Handles are of device memory only.
        """
        self._check_ipc()
        base = self._pieces.at(ptr, size, "Level Zero allocation").origin
        return self._exports.export(base, ptr - base, size)

    def ipc_release(self, payload: bytes) -> None:
        """Give an export back: zeMemPutIpcHandle, where the loader has it (version 1.6)."""
        self._check_ipc()
        self._exports.release(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        """Return the descriptor that the handle holds; none, if this driver's have none."""
        self._check_ipc()
        fd = self._exports.check(payload).fd
        return () if fd < 0 else (fd,)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported allocation."""
        return LevelZeroPayload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's allocation: zeMemOpenIpcHandle.

        Without its descriptor that is fetched from the exporter: pidfd_getfd(2), /proc/PID/fd.
        Each open costs a mapping, and with some drivers a descriptor until the process ends;
        `umfpy.open_ipc` opens each allocation once.

        Raises
        ------
        IpcError
            The payload is of another device, its memory is gone, or the system does not let this
            process at the descriptor; the message says what to allow.
        NotSupported
            This provider is one of host or shared memory.
        """
        self._check_ipc()
        parsed = LevelZeroPayload.unpack(payload)
        if parsed.uuid != self._device.uuid:
            raise IpcError(f"the memory is on device {parsed.uuid}; this provider is on {self}")
        return self._imports.open(parsed, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned: zeMemCloseIpcHandle."""
        self._check_ipc()
        self._imports.close(ptr, size)
        self._close_if_unused()

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Return a provider on the device with that UUID, whatever its index is here.

        Raises
        ------
        IpcError
            This process does not see it.
        """
        if scope not in [device.uuid for device in all_devices(LevelZeroDriver())]:
            raise IpcError(
                f"this process sees no Level Zero device {scope}; look at ZE_AFFINITY_MASK"
            )
        return cls(scope)

    def _take_aligned(self, size: int, alignment: int) -> tuple[int, int]:
        """Return native base and aligned address."""
        try:
            base = self._try_aligned(size, alignment)
            if base is not None:
                return base, base
            base = self._source.take(size + alignment, 0)
        except OutOfMemoryError as error:
            raise self._out_of_memory(size, error) from error
        except DriverError as error:
            # More than the device could ever have.
            if error.code == Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE:
                raise self._out_of_memory(size, error) from error
            raise
        return base, round_up(base, alignment)

    def _try_aligned(self, size: int, alignment: int) -> int | None:
        """Return an aligned address that the driver gives by itself, if it does."""
        try:
            base = self._source.take(size, alignment)
        except DriverError as error:
            if error.code == Result.ZE_RESULT_ERROR_UNSUPPORTED_ALIGNMENT:
                return None
            raise
        if base % alignment:
            self._abandon(base)
            return None
        return base

    def _abandon(self, base: int) -> None:
        """Give back what nobody has seen; if need be, at close."""
        self._later.attempt(partial(self._driver.call, "zeMemFree", self._context.handle, base))

    def _check_ordinal(self, ordinal: int) -> None:
        if self.memory_type == "host" and ordinal:
            raise InvalidArgument(f"host memory has no ordinal, and so not {ordinal}")
        if self.memory_type != "host" and not 0 <= ordinal < len(self._memory_sizes):
            raise InvalidArgument(
                f"{self._device} has {len(self._memory_sizes)} memories, from 0 on, and none of "
                f"ordinal {ordinal}"
            )

    def _check_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise NotSupported(
                f"Level Zero has no IPC for {self.memory_type} memory; use "
                'LevelZeroProvider(memory_type="device")'
            )
