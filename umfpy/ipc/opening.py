"""Opening handles: whose memory it is, which provider opens it, and what can be wrong."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

from umfpy.arguments import check_number
from umfpy.errors import ConfigurationError, DriverError, InvalidArgument, IpcError, NotSupported
from umfpy.ipc.cache import CacheInfo, RootCache, raise_unclosed
from umfpy.ipc.descriptors import fetched
from umfpy.ipc.exports import is_live
from umfpy.ipc.handle import IpcHandle, IpcRoot
from umfpy.ipc.mapping import IpcMapping, Lease
from umfpy.ipc.process import ProcessId
from umfpy.ipc.providers import Importers
from umfpy.ipc.root_exports import find_export
from umfpy.provider import Capability, Provider

#: Environment variable with the limit of idle roots, and what holds without it.
CACHE_VARIABLE = "UMFPY_IPC_CACHE"
DEFAULT_CACHE_LIMIT = 64


def open_ipc(
    handle: IpcHandle | bytes | bytearray | memoryview, *, provider: Provider | None = None
) -> IpcMapping:
    """Open memory that another process shared.

    Parameters
    ----------
    handle
        What the other process got from ``allocation.ipc_handle()``, or its bytes.
    provider
        What opens it.  None finds one by the name in the handle, for the same device whatever
        its ordinal is here.

    Returns
    -------
    IpcMapping
        The same memory in this process.  In the exporting process itself, its own addresses, as
        long as an allocation is there.

    Raises
    ------
    IpcError
        The handle is damaged, was made on another machine, or names an unknown provider or a
        device that this process does not see; its memory was freed or its process is gone; or
        the driver refused, with its words.
    InvalidArgument
        `handle` is no handle, or `provider` is of another kind than the handle's.
    NotSupported
        `provider` cannot open memory of other processes.
    DriverUnavailable, OutOfMemoryError
        The driver is missing here, or has no room for the mapping.

    Notes
    -----
    A root is opened once, however many pieces of it are.  When the last mapping of it is closed
    it stays open for a while, so that opening another piece costs nothing: see
    `set_cache_limit`.  Nobody is asked then whether the exporter still has the memory; only a
    root that has to be opened natively is checked by the driver.  If that opens none, roots without
    a mapping are closed, and it is asked again.  An exporter that frees what importers may open
    again has to tell them.  Any thread may call this.
    """
    if not isinstance(handle, IpcHandle):
        handle = IpcHandle.from_bytes(handle)
    exporter = handle.root.exporter
    here = ProcessId.current()
    if exporter == here:
        return _open_own(handle)
    if exporter.host != here.host:
        raise IpcError(
            "this IPC handle was made on another machine, or on this one before its last start; "
            "memory can be shared within one running machine only"
        )
    if exporter.ended():
        raise IpcError(f"{exporter}, which shared this memory, has ended, and its memory with it")
    provider = _state.importer_of(handle, provider)
    cache = _state.cache()
    entry = cache.acquire(provider, handle.root, _opener(provider, handle))
    base = entry.address or 0
    return IpcMapping(handle, provider, base + handle.offset, Lease(cache, entry))


def set_cache_limit(limit: int) -> None:
    """Keep at most `limit` roots open that no mapping uses; the longest idle is closed first.

    0 closes each root with its last mapping.  That is the setting for an exporter that frees
    memory as soon as it hears that its importers have closed it: CUDA leaves undefined what
    happens to memory that is freed while it is open anywhere.  The default is 64, or what
    the environment variable ``UMFPY_IPC_CACHE`` says.  Raises DriverError if the driver refuses
    to close one.
    """
    limit = check_number(limit, "the number of idle roots to keep")
    raise_unclosed(_state.cache().set_limit(limit))


def clear_cache() -> None:
    """Close all roots that no mapping uses, and let go of the providers kept for opening.

    Raises DriverError if the driver refuses to close one.
    """
    errors = _state.cache().clear()
    _state.importers.clear()
    raise_unclosed(errors)


def cache_info() -> CacheInfo:
    """Return the counters of the roots that are open in this process."""
    return _state.cache().info()


class _State:
    """What this process keeps for opening; a forked child starts with its own."""

    def __init__(self) -> None:
        self.importers = Importers()
        self._lock = threading.Lock()
        self._cache: RootCache | None = None

    def cache(self) -> RootCache:
        """Return the cache, made at its first use: only then must its variable make sense."""
        with self._lock:
            if self._cache is None:
                self._cache = RootCache(_limit_from_environment())
            return self._cache

    def importer_of(self, handle: IpcHandle, provider: Provider | None) -> Provider:
        """Return the provider to open a handle with: the caller's, if it will do."""
        root = handle.root
        if provider is None:
            provider = self.importers.find(root.provider, root.scope)
        if provider.name != root.provider:
            raise InvalidArgument(
                f"this IPC handle is of provider {root.provider!r}; provider {provider.name!r} "
                "cannot open it"
            )
        if Capability.IPC not in provider.capabilities:
            raise NotSupported(
                f"{provider!r} cannot open memory of other processes: it has "
                f"{provider.capabilities}"
            )
        return provider

    def abandon(self) -> None:
        """Do nothing any more: this is a forked child, and all this is its parent's."""
        if self._cache is not None:
            self._cache.abandon()


def _limit_from_environment() -> int:
    text = os.environ.get(CACHE_VARIABLE, str(DEFAULT_CACHE_LIMIT))
    if not text.isdecimal():
        raise ConfigurationError(
            f"{CACHE_VARIABLE} is {text!r}; it must be how many idle roots to keep open, 0 or more"
        )
    return int(text)


def _open_own(handle: IpcHandle) -> IpcMapping:
    """Open a handle in the process that made it, where drivers refuse to."""
    export = find_export(handle.root.export_id)
    if export is None or export.named() != handle.root:
        raise IpcError(
            "this IPC handle was made by this process itself, for memory that it has freed since"
        )
    ptr = export.base + handle.offset
    if not is_live(ptr, handle.size):
        raise IpcError(
            f"this IPC handle was made by this process itself, for the {handle.size} bytes at "
            f"{ptr:#x}, which it has freed since, or made smaller"
        )
    return IpcMapping(handle, export.provider, ptr)


def _opener(provider: Provider, handle: IpcHandle) -> Callable[[], int]:
    def open_root() -> int:
        root = handle.root
        _check_size(provider, root)
        try:
            with fetched(handle) as descriptors:
                return provider.ipc_open(root.payload, descriptors)
        except DriverError as error:
            raise IpcError(
                f"{provider.name} cannot open memory of {root.exporter}: {error}; most likely "
                "it was freed, or the process ended, after the handle was made"
            ) from error

    return open_root


def _check_size(provider: Provider, root: IpcRoot) -> None:
    """Refuse a handle that claims a larger root than its payload is of: it would lead beyond."""
    described = provider.ipc_size(root.payload)
    if described is not None and described != root.size:
        raise IpcError(
            f"this IPC handle says that its root has {root.size} bytes, but what it has for "
            f"{provider.name} is of {described} bytes: no umfpy made it"
        )


_state = _State()
#: The states of the processes that this one was forked from.  Kept, because to drop them would
#: close drivers that are not this process's.
_inherited: list[_State] = []


def _after_fork_in_child() -> None:
    global _state
    _state.abandon()
    _inherited.append(_state)
    _state = _State()


os.register_at_fork(after_in_child=_after_fork_in_child)
