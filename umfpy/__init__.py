"""umfpy: a GPU memory manager for Python."""

from umfpy.errors import (
    AlignmentError,
    CapacityExceeded,
    ConfigurationError,
    DriverError,
    DriverUnavailable,
    InvalidArgument,
    IpcError,
    NotSupported,
    OutOfMemoryError,
    StaleHandle,
    UmfpyError,
)
from umfpy.provider import Capability, NativeError, Provider
