"""Sharing memory with other processes: any piece of it, whatever the provider can split.

The exporter names a piece with `export`; any other process on the machine opens it with
`open_ipc`.  Both go by the physical root: one native export, and one native open in each
importer, for all the pieces of it.  A pool over virtual memory has one root of which parts come
and go: there, both go by the chunks that a piece lies in.  Handles are bytes, and travel over any
channel; through `multiprocessing` they, allocations and mappings can be sent as they are.
"""

from umfpy.ipc.cache import CacheInfo
from umfpy.ipc.exports import export
from umfpy.ipc.handle import IpcHandle, IpcRoot
from umfpy.ipc.mapping import IpcMapping
from umfpy.ipc.opening import cache_info, clear_cache, open_ipc, set_cache_limit
from umfpy.ipc.process import ProcessId
from umfpy.ipc.providers import register_provider
from umfpy.ipc.transport import reduce_allocation

__all__ = [
    "CacheInfo",
    "IpcHandle",
    "IpcMapping",
    "IpcRoot",
    "ProcessId",
    "cache_info",
    "clear_cache",
    "export",
    "open_ipc",
    "reduce_allocation",
    "register_provider",
    "set_cache_limit",
]
