"""The exporter's side: one native export for each physical root, however many pieces are shared."""

from __future__ import annotations

import os
import secrets
import threading
import weakref

from umfpy.core.extents import Extent, innermost
from umfpy.core.pool import Allocation
from umfpy.errors import DriverError, InvalidArgument, IpcError, StaleHandle
from umfpy.find import find
from umfpy.ipc.handle import EXPORT_ID_SIZE, IpcHandle, IpcRoot
from umfpy.ipc.process import ProcessId

#: Guards `Extent.export`, so that a root gets one; held for no call of anything else.
_attaching = threading.Lock()

#: The exports of this process that are still good, by export id.
_live: weakref.WeakValueDictionary[bytes, Export] = weakref.WeakValueDictionary()


class Export:
    """The export of one physical root: ``extent.export``, until the root goes upstream."""

    def __init__(self, extent: Extent) -> None:
        self.base: int = extent.base
        self.provider = extent.provider
        self._size: int = extent.size
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._root: IpcRoot | None = None
        self._released = False

    def root(self) -> IpcRoot:
        """Return what names the root, exported natively when it is first asked for.

        Raises
        ------
        NotSupported
            The provider has no IPC for this memory, and says why.
        IpcError
            The driver refused, or this is a forked child and the memory its parent's.
        StaleHandle
            The root went upstream meanwhile.
        """
        if os.getpid() != self._owner:
            raise IpcError(
                f"the memory at {self.base:#x} was exported by process {self._owner}, which "
                "forked this one: only that process can share it"
            )
        with self._lock:
            if self._released:
                raise StaleHandle(f"the memory at {self.base:#x} went back to its provider")
            if self._root is None:
                self._root = self._export()
                _live[self._root.export_id] = self
            return self._root

    def release(self) -> None:
        """Give the native export back: once, right before the root's memory goes.

        In a forked child nothing happens: the export is the parent's.  If the provider's
        `ipc_release` raises, the export is as it was.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._root is not None and not self._released:
                self.provider.ipc_release(self._root.payload)
                _live.pop(self._root.export_id, None)
            self._released = True

    def duplicate_descriptors(self) -> list[int]:
        """Return copies of the descriptors that go with the export; the caller closes them.

        None once it is released: their numbers may be those of other files by then.
        """
        copies: list[int] = []
        with self._lock:
            if self._root is None or self._released:
                return copies
            try:
                for descriptor in self.provider.ipc_descriptors(self._root.payload):
                    copies.append(os.dup(descriptor))
            except OSError:
                for descriptor in copies:
                    os.close(descriptor)
                raise
        return copies

    def needs_descriptors(self) -> bool:
        """Return whether file descriptors go with the export."""
        with self._lock:
            if self._root is None or self._released:
                return False
            return bool(self.provider.ipc_descriptors(self._root.payload))

    def _export(self) -> IpcRoot:
        scope = self.provider.ipc_scope()
        try:
            payload = self.provider.ipc_export(self.base, self._size)
        except DriverError as error:
            raise IpcError(
                f"the {self._size} bytes at {self.base:#x} cannot be exported: {error}"
            ) from error
        try:
            return IpcRoot(
                provider=self.provider.name,
                scope=scope,
                payload=payload,
                exporter=ProcessId.current(),
                export_id=secrets.token_bytes(EXPORT_ID_SIZE),
                size=self._size,
            )
        except IpcError:
            self.provider.ipc_release(payload)
            raise


def export(memory: Allocation | int) -> IpcHandle:
    """Return a handle on which other processes open the same memory.

    Parameters
    ----------
    memory
        An `Allocation`, or an address in a live one.  An address may be an interior one: the
        handle is then of the bytes from there to the allocation's end.

    Returns
    -------
    IpcHandle
        It keeps nothing alive.  The memory must not be freed before all importers have closed
        it: in CUDA that is undefined, in host memory they read and write what comes there next.

    Raises
    ------
    InvalidArgument
        Not a live allocation of this process, or one of no bytes.
    StaleHandle
        The allocation was freed.
    NotSupported
        Its physical memory comes from a provider without IPC, such as private host memory.
    IpcError
        The driver refused; the message has its words.

    Notes
    -----
    The native export is of the whole physical root: who can open the handle can reach all of
    it.  It is made when the first piece of the root is shared, and kept until the root goes
    upstream.  Any thread may call this.
    """
    ptr, size = _range_of(memory)
    extent = innermost(ptr)
    if extent is None:
        raise InvalidArgument(f"{ptr:#x} is not managed by umfpy any more")
    root = _export_of(extent.root).root()
    _check_still_there(ptr, extent.root)
    return IpcHandle(root, ptr - extent.root.base, size)


def find_export(export_id: bytes) -> Export | None:
    """Return this process's export of that id, or None if it was released or never made."""
    return _live.get(export_id)


def _range_of(memory: Allocation | int) -> tuple[int, int]:
    """Return the address and size of what is to be shared."""
    if isinstance(memory, Allocation):
        if memory.freed:
            raise StaleHandle(f"the allocation at {memory.ptr:#x} was freed; nothing to share")
        ptr, size = memory.ptr, memory.size
    elif isinstance(memory, int):
        info = find(memory) if memory > 0 else None
        if info is None:
            raise InvalidArgument(
                f"{memory:#x} lies in no live allocation of this process; what another process "
                "shared is passed on with its mapping's handle"
            )
        ptr, size = memory, info.base + info.size - memory
    else:
        raise InvalidArgument(
            f"an Allocation or an address can be shared, not {type(memory).__name__}"
        )
    if size == 0:
        raise InvalidArgument(f"the allocation at {ptr:#x} has no bytes to share")
    return ptr, size


def _export_of(extent: Extent) -> Export:
    fresh = Export(extent)
    with _attaching:
        if extent.export is None:
            extent.export = fresh
        attached: Export = extent.export
    return attached


def _check_still_there(ptr: int, root: Extent) -> None:
    """Raise StaleHandle if the root went upstream while it was being exported.

    Then whoever gave it back had not seen the export, and it is given back here.
    """
    now = innermost(ptr)
    if now is not None and now.root is root:
        return
    with _attaching:
        left, root.export = root.export, None
    if left is not None:
        left.release()
    raise StaleHandle(f"the memory at {ptr:#x} was freed while it was being exported")


def _after_fork_in_child() -> None:
    """The parent's exports are not this process's, and its locks may be held by nobody here."""
    global _attaching
    _attaching = threading.Lock()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
