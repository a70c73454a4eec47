"""A device and its primary context."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Any

from umfpy.errors import DriverError, DriverUnavailable, InvalidArgument, OutOfMemoryError
from umfpy.providers.cuda.driver import CudaDriver


def find_device(driver: CudaDriver, ordinal: int) -> Any:
    """Return the driver's handle of device `ordinal`: cuDeviceGet.

    Raises
    ------
    InvalidArgument
        There is no such device; the message has their number.
    DriverUnavailable
        There is none at all.
    """
    count = driver.call("cuDeviceGetCount")
    if count == 0:
        raise DriverUnavailable("the CUDA driver sees no device; look at CUDA_VISIBLE_DEVICES")
    if not 0 <= ordinal < count:
        raise InvalidArgument(f"no CUDA device {ordinal}: this process sees {count}, from 0 on")
    return driver.call("cuDeviceGet", ordinal)


def device_uuid(driver: CudaDriver, device: Any) -> str:
    """Return a device's UUID, the same in every process, as hexadecimal: cuDeviceGetUuid."""
    return bytes(driver.call("cuDeviceGetUuid", device).bytes).hex()


class PrimaryContext:
    """The primary context of a device, retained until `release`.

    ``with context:`` makes it current for the calling thread, and gives the thread back the
    stack of contexts that it had, whatever happens in between (cuCtxPushCurrent,
    cuCtxPopCurrent).  It may be entered by many threads at once.
    """

    def __init__(self, driver: CudaDriver, device: Any) -> None:
        self._driver = driver
        self._device = device
        self._lock = threading.Lock()
        self._retained = True
        self._handle = driver.call("cuDevicePrimaryCtxRetain", device)

    def __enter__(self) -> None:
        self._driver.call("cuCtxPushCurrent", self._handle)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self._driver.call("cuCtxPopCurrent")
        except (DriverError, OutOfMemoryError):
            # The work in between is done and must not be reported as failed for this; a second
            # failure means that the context is gone, and everything in it.
            self._driver.call("cuCtxPopCurrent")

    def release(self) -> None:
        """Give the context back, once: cuDevicePrimaryCtxRelease.

        Raises
        ------
        DriverError
            The driver refused; a later call tries again.
        """
        with self._lock:
            if self._retained:
                self._driver.call("cuDevicePrimaryCtxRelease", self._device)
                self._retained = False
