"""CUDA streams, as arrays are passed from one library to another."""

from __future__ import annotations

from umfpy.errors import InvalidArgument
from umfpy.providers.cuda.context import PrimaryContext, find_device
from umfpy.providers.cuda.driver import CudaDriver

#: CU_STREAM_LEGACY, which is also what 0 means to the driver, and what DLPack and the CUDA Array
#: Interface call the legacy default stream; both call the per-thread one 2, as CUDA does.
LEGACY = 1

#: In DLPack: the consumer wants no ordering.
NO_ORDER = -1

#: CU_EVENT_DISABLE_TIMING
_NO_TIMING = 2


def consumer_stream(stream: int | None) -> int:
    """Return the stream that a consumer's ``__dlpack__(stream=...)`` names.

    Raises
    ------
    InvalidArgument
        It is 0, which could mean two streams, or no stream at all.
    """
    if stream is None:
        return LEGACY
    if not isinstance(stream, int) or stream < NO_ORDER:
        raise InvalidArgument(f"stream must be a CUDA stream's handle, -1 or None, not {stream!r}")
    if stream == 0:
        raise InvalidArgument(
            "stream=0 is ambiguous in DLPack: pass 1 for the legacy default stream, or 2 for the "
            "per-thread one"
        )
    return stream


def order(ordinal: int, before: int, after: int) -> None:
    """Have `after` wait for what is queued on `before` now, without the host waiting.

    cuEventRecord and cuStreamWaitEvent on the device's primary context.
    """
    before, after = before or LEGACY, after or LEGACY
    if before == after:
        return
    driver = CudaDriver()
    context = PrimaryContext(driver, find_device(driver, ordinal))
    try:
        with context:
            event = driver.call("cuEventCreate", _NO_TIMING)
            try:
                driver.call("cuEventRecord", event, before)
                driver.call("cuStreamWaitEvent", after, event, 0)
            finally:
                driver.call("cuEventDestroy", event)
    finally:
        context.release()
