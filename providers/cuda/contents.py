"""Zeroing and copying on the device."""

from __future__ import annotations

from umfpy.errors import InvalidArgument
from umfpy.provider import Location
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.host.buffers import address_of

#: The legacy default stream: every other blocking stream of the context waits for it.
_DEFAULT_STREAM = 0


def fill_zero(driver: CudaDriver, ptr: int, size: int, stream: int | None) -> None:
    """Write zeros; the context must be current.

    cuMemsetD8Async on a stream; without one cuMemsetD8, which returns before the device is done
    (CUDA Driver API, API synchronization behavior), so that the default stream is waited for.
    """
    if size < 0:
        raise InvalidArgument(f"a size cannot be negative: {size}")
    if not size:
        return
    if stream is not None:
        driver.call("cuMemsetD8Async", ptr, 0, size, stream)
        return
    driver.call("cuMemsetD8", ptr, 0, size)
    driver.call("cuStreamSynchronize", _DEFAULT_STREAM)


def copy_memory(
    driver: CudaDriver, dst: Location, src: Location, size: int, stream: int | None
) -> None:
    """Copy between addresses and host buffers; the context must be current.

    cuMemcpy between addresses, where the driver tells from the address what it is (unified
    addressing); cuMemcpyHtoD and cuMemcpyDtoH with a buffer.  Their plain forms too may return
    before the device is done.
    """
    if size < 0:
        raise InvalidArgument(f"a size cannot be negative: {size}")
    if not size:
        return
    name = _copy_function(dst, src)
    with address_of(dst, size, writable=True) as to, address_of(src, size, writable=False) as of:
        if stream is not None:
            driver.call(f"{name}Async", to, of, size, stream)
            return
        driver.call(name, to, of, size)
        driver.call("cuStreamSynchronize", _DEFAULT_STREAM)


def _copy_function(dst: Location, src: Location) -> str:
    if isinstance(dst, int):
        return "cuMemcpy" if isinstance(src, int) else "cuMemcpyHtoD"
    if isinstance(src, int):
        return "cuMemcpyDtoH"
    raise InvalidArgument("both sides of the copy are host buffers; one has to be an address")
