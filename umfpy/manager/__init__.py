"""`MemoryManager`: handles over pages, layouts, and memory for captured graphs.

In the manner of CubeCL's memory manager.  Pages are extents of `umfpy.core`'s extent map, slices
are its blocks: what differs between the pools is when pages come, which one serves a request,
and when they go.  ``umfpy.find``, IPC and statistics work on slices as on all memory of umfpy.
"""

from umfpy.core.handle import Binding, Handle
from umfpy.errors import CaptureWouldBreak
from umfpy.manager.budget import Budget
from umfpy.manager.configuration import MemoryConfiguration, resolve
from umfpy.manager.errors import (
    BufferTooBig,
    CapSmallerThanPage,
    EmptyPoolList,
    LayoutError,
    MalformedConfiguration,
    PoolCapacityExceeded,
    PoolsUnavailable,
    SliceLargerThanPage,
    TooManyPages,
    TooManyPools,
    ZeroSize,
)
from umfpy.manager.manager import MemoryManager
from umfpy.manager.modes import Mode, Persistence
from umfpy.manager.options import ExclusiveOptions, SlicedOptions
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.storage import Storage
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.pools.captures import CaptureMode

__all__ = [
    "Binding",
    "Budget",
    "BufferTooBig",
    "CapSmallerThanPage",
    "CaptureMode",
    "CaptureWouldBreak",
    "EmptyPoolList",
    "ExclusiveOptions",
    "Handle",
    "LayoutError",
    "MalformedConfiguration",
    "MemoryConfiguration",
    "MemoryManager",
    "MemoryProperties",
    "MemoryUsage",
    "Mode",
    "Persistence",
    "PoolCapacityExceeded",
    "PoolUsage",
    "PoolsUnavailable",
    "SliceLargerThanPage",
    "SlicedOptions",
    "Storage",
    "TooManyPages",
    "TooManyPools",
    "ZeroSize",
    "resolve",
]
