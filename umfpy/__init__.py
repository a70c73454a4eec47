"""umfpy: a GPU memory manager for Python.

A `Provider` is a source of memory, a `Pool` cuts it up, an `Allocation` is a piece that is freed
when it is dropped.  `find` leads from any address back to its allocation.
"""

from typing import TYPE_CHECKING

from umfpy.coarse import CoarseProvider
from umfpy.core.pool import Allocation
from umfpy.errors import (
    AlignmentError,
    CapacityExceeded,
    CaptureWouldBreak,
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
from umfpy.find import AllocationInfo, find
from umfpy.lazy import lazy
from umfpy.pools.growth import Growth
from umfpy.pools.idle import Idle
from umfpy.pools.pool import Pool
from umfpy.pools.proxy import ProxyPool
from umfpy.pools.rungs import Trimmed
from umfpy.pools.slab import SlabPool
from umfpy.pools.slab_limit import SharedLimit
from umfpy.pools.slab_stats import BucketStats
from umfpy.pools.stats import PoolStats
from umfpy.pools.virtual_growth import VirtualGrowth
from umfpy.provider import Capability, NativeError, Provider

if TYPE_CHECKING:
    from umfpy import integrations, ipc, manager, providers, testing, trace
    from umfpy.integrations.arrays import ArrayView, view
    from umfpy.ipc import IpcHandle, IpcMapping, export, open_ipc
    from umfpy.manager import Handle, MemoryConfiguration, MemoryManager
    from umfpy.providers.cuda import CudaAsyncProvider, CudaProvider, CudaVmmProvider
    from umfpy.providers.emulated import emulate
    from umfpy.providers.host import FileProvider, FixedProvider, HostProvider
    from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider
    from umfpy.providers.opencl import OpenCLProvider

__version__ = "0.1.0"

#: What is loaded when it is first asked for: the back ends need drivers or bindings.
_LAZY = {
    "ArrayView": "umfpy.integrations.arrays",
    "CudaAsyncProvider": "umfpy.providers.cuda",
    "CudaProvider": "umfpy.providers.cuda",
    "CudaVmmProvider": "umfpy.providers.cuda",
    "FileProvider": "umfpy.providers.host",
    "FixedProvider": "umfpy.providers.host",
    "Handle": "umfpy.manager",
    "HostProvider": "umfpy.providers.host",
    "IpcHandle": "umfpy.ipc",
    "IpcMapping": "umfpy.ipc",
    "LevelZeroProvider": "umfpy.providers.level_zero",
    "LevelZeroVmmProvider": "umfpy.providers.level_zero",
    "MemoryConfiguration": "umfpy.manager",
    "MemoryManager": "umfpy.manager",
    "OpenCLProvider": "umfpy.providers.opencl",
    "emulate": "umfpy.providers.emulated",
    "export": "umfpy.ipc",
    "open_ipc": "umfpy.ipc",
    "view": "umfpy.integrations.arrays",
}

__all__ = [
    "AlignmentError",
    "Allocation",
    "AllocationInfo",
    "ArrayView",
    "BucketStats",
    "Capability",
    "CapacityExceeded",
    "CaptureWouldBreak",
    "CoarseProvider",
    "ConfigurationError",
    "CudaAsyncProvider",
    "CudaProvider",
    "CudaVmmProvider",
    "DriverError",
    "DriverUnavailable",
    "FileProvider",
    "FixedProvider",
    "Growth",
    "Handle",
    "HostProvider",
    "Idle",
    "InvalidArgument",
    "IpcError",
    "IpcHandle",
    "IpcMapping",
    "LevelZeroProvider",
    "LevelZeroVmmProvider",
    "MemoryConfiguration",
    "MemoryManager",
    "NativeError",
    "NotSupported",
    "OpenCLProvider",
    "OutOfMemoryError",
    "Pool",
    "PoolStats",
    "Provider",
    "ProxyPool",
    "SharedLimit",
    "SlabPool",
    "StaleHandle",
    "Trimmed",
    "UmfpyError",
    "VirtualGrowth",
    "emulate",
    "export",
    "find",
    "integrations",
    "ipc",
    "manager",
    "open_ipc",
    "providers",
    "testing",
    "trace",
    "view",
]

#: The public submodules.
_SUBMODULES = ("integrations", "ipc", "manager", "providers", "testing", "trace")

__getattr__, __dir__ = lazy(__name__, submodules=_SUBMODULES, names=_LAZY)
