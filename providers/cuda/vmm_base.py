"""What the providers of one CUDA device have in common: its context, contents, and closing."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sized
from typing import Any

from umfpy.arguments import check_device
from umfpy.errors import DriverError, InvalidArgument, IpcError, OutOfMemoryError, UmfpyError
from umfpy.provider import Location, NativeError, Provider
from umfpy.providers.cuda.contents import copy_memory, fill_zero
from umfpy.providers.cuda.context import PrimaryContext, device_uuid, find_device
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.properties import pointer_properties
from umfpy.providers.device import DeviceProvider
from umfpy.providers.host.pieces import Pieces
from umfpy.units import format_size


class CudaDeviceProvider(DeviceProvider):
    """A provider on one device, in its primary context; see its subclasses.

    `_prepare` is called before the context is retained: there a device is refused that lacks
    what is needed.
    """

    #: CuPy and PyTorch count on 512.
    granule = 512

    def __init__(self, device: int) -> None:
        self.device = check_device(device)
        self._driver = CudaDriver()
        self._handle = find_device(self._driver, self.device)
        self._prepare()
        self._pieces = Pieces()
        self._closed = False
        self._context = PrimaryContext(self._driver, self._handle)
        self._closing = Closing([self._pieces], [self._context.release])
        # A provider that is dropped without close() must not keep the context; one with live
        # memory must, because that would go with it.  At exit the driver cleans up by itself.
        finalizer = weakref.finalize(self, self._closing.drop)
        finalizer.atexit = False

    def _prepare(self) -> None:
        """Raise NotSupported if the device cannot do what this provider is made of."""

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
        wait_for(self._driver, self._context)

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
            free, total = self._driver.call("cuMemGetInfo")
        return int(free), int(total)

    def native_error(self) -> NativeError | None:
        """Return this thread's last failure, in the driver's words."""
        return self._driver.last_error()

    def live_count(self) -> int:
        """Return how many pieces are allocated: 0 when everything was freed."""
        return len(self._pieces)

    def close(self) -> None:
        """Let go of the driver, as soon as nothing is allocated or opened any more."""
        self._closed = True
        self._closing()

    def _close_if_unused(self) -> None:
        """Let go of the driver after the last piece; the call that gave that back is done.

        If the driver refuses, `close` can be called again.
        """
        if self._closed:
            with contextlib.suppress(DriverError, OutOfMemoryError):
                self._closing()

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument(f"this {self.name} provider is closed; make a new one")

    def _check_device(self, uuid: str) -> None:
        own = self.ipc_scope()
        if uuid != own:
            raise IpcError(f"the memory is on device {uuid}; this provider is on {own}")

    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        text = f"{self.name} has no memory for {size} bytes ({format_size(size)}): {error}"
        with contextlib.suppress(DriverError):
            free, total = self.memory_info()
            text += f"; CUDA device {self.device} has {free} of {total} bytes free"
        return OutOfMemoryError(text, requested=size, provider=self.name)


def wait_for(driver: CudaDriver, context: PrimaryContext) -> None:
    """Wait for all work of a context: cuCtxSynchronize."""
    with context:
        driver.call("cuCtxSynchronize")


class Closing:
    """Gives back what a provider holds besides memory, once `holdings` are empty.

    Each action may be called again, and does then what is left to do; the last one lets the
    context go.  None refers to the provider, which could otherwise never be dropped.
    """

    def __init__(self, holdings: list[Sized], actions: list[Callable[[], object]]) -> None:
        self.holdings = holdings
        self.actions = actions

    def before(self, *actions: Callable[[], object]) -> None:
        """Have these done first, in this order."""
        self.actions[:0] = actions

    def __call__(self) -> None:
        if any(map(len, self.holdings)):
            return
        for action in self.actions:
            action()

    def drop(self) -> None:
        """Do the same for a provider that is gone; nobody is there to be told of failures.

        A forked child has nothing to give back.
        """
        with contextlib.suppress(UmfpyError):
            self()
