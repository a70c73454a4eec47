"""What was exported of one physical root: all of it, or each run of its chunks that was shared."""

from __future__ import annotations

import os
import secrets
import threading
import weakref

from umfpy.core.extents import Extent
from umfpy.errors import DriverError, IpcError
from umfpy.ipc.handle import EXPORT_ID_SIZE, IpcRoot
from umfpy.ipc.process import ProcessId
from umfpy.provider import Provider

#: Guards `Extent.export` and what is in there; held for no call of anything else.
_changing = threading.Lock()

#: The exports of this process that are still good, by export id.
_live: weakref.WeakValueDictionary[bytes, Export] = weakref.WeakValueDictionary()


class Export:
    """One native export, of a range of a root that a provider exports by itself."""

    def __init__(self, provider: Provider, base: int, size: int) -> None:
        self.provider = provider
        self.base = base
        self.size = size
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._named: IpcRoot | None = None
        self._released = False

    @property
    def released(self) -> bool:
        """Whether it was given back, and is not used again."""
        return self._released

    def named(self) -> IpcRoot | None:
        """Return what names the memory, exported natively when that is first asked for.

        None once it was given back.

        Raises
        ------
        NotSupported
            The provider has no IPC for this memory, and says why.
        IpcError
            The driver refused.
        InvalidArgument
            Its memory is not there any more.
        """
        with self._lock:
            if self._released:
                return None
            if self._named is None:
                self._named = self._export()
                _live[self._named.export_id] = self
            return self._named

    def release(self) -> None:
        """Give the native export back: once, right before its memory goes.

        In a forked child nothing happens: the export is the parent's.  If the provider's
        `ipc_release` raises, the export is as it was.
        """
        if os.getpid() != self._owner:
            return
        with self._lock:
            if self._named is not None and not self._released:
                self.provider.ipc_release(self._named.payload)
                _live.pop(self._named.export_id, None)
            self._released = True

    def duplicate_descriptors(self) -> list[int]:
        """Return copies of the descriptors that go with the export; the caller closes them.

        None once it is released: their numbers may be those of other files by then.
        """
        copies: list[int] = []
        with self._lock:
            if self._named is None or self._released:
                return copies
            try:
                for descriptor in self.provider.ipc_descriptors(self._named.payload):
                    copies.append(os.dup(descriptor))
            except OSError:
                for descriptor in copies:
                    os.close(descriptor)
                raise
        return copies

    def needs_descriptors(self) -> bool:
        """Return whether file descriptors go with the export."""
        with self._lock:
            if self._named is None or self._released:
                return False
            return bool(self.provider.ipc_descriptors(self._named.payload))

    def _export(self) -> IpcRoot:
        scope = self.provider.ipc_scope()
        try:
            payload = self.provider.ipc_export(self.base, self.size)
        except DriverError as error:
            raise IpcError(
                f"the {self.size} bytes at {self.base:#x} cannot be exported: {error}"
            ) from error
        try:
            return IpcRoot(
                provider=self.provider.name,
                scope=scope,
                payload=payload,
                exporter=ProcessId.current(),
                export_id=secrets.token_bytes(EXPORT_ID_SIZE),
                size=self.size,
            )
        except IpcError:
            self.provider.ipc_release(payload)
            raise


class RootExports:
    """The exports of one physical root, one for each range: ``extent.export``.

    Whoever takes memory away withdraws what was exported of it; see `umfpy.ipc.export` for why
    none is made behind its back.
    """

    def __init__(self, root: Extent) -> None:
        self._root_base: int = root.base
        self._provider = root.provider
        self._owner = os.getpid()
        self._by_range: dict[tuple[int, int], Export] = {}

    def __len__(self) -> int:
        return len(self._by_range)

    def of(self, base: int, size: int) -> Export:
        """Return the export of a range: the one that there is, or a new one."""
        with _changing:
            found = self._by_range.get((base, size))
            if found is None or found.released:
                found = self._by_range[base, size] = Export(self._provider, base, size)
        return found

    def withdraw(self, start: int, size: int) -> None:
        """Give back every export that has to do with a range, before that loses its memory.

        Raises what the provider's `ipc_release` does; that export, and those that were not
        reached, are as they were.  O(exports of the root).
        """
        with _changing:
            exports = list(self._by_range.values())
        for export in exports:
            if export.base < start + size and start < export.base + export.size:
                self.end(export)

    def end(self, export: Export) -> None:
        """Give one export back; raises as `withdraw`."""
        export.release()
        with _changing:
            if self._by_range.get((export.base, export.size)) is export:
                del self._by_range[export.base, export.size]

    def check_owner(self) -> None:
        """Raise IpcError in a child that was forked after something was exported."""
        if os.getpid() != self._owner:
            raise IpcError(
                f"the memory at {self._root_base:#x} was exported by process {self._owner}, which "
                "forked this one: only that process can share it"
            )


def exports_of(root: Extent) -> RootExports:
    """Return the exports of a root.

    Raises IpcError in a forked child, if the root was shared before: it is the parent's.
    """
    fresh = RootExports(root)
    with _changing:
        if root.export is None:
            root.export = fresh
        attached: RootExports = root.export
    attached.check_owner()
    return attached


def find_export(export_id: bytes) -> Export | None:
    """Return this process's export of that id, or None if it was released or never made."""
    return _live.get(export_id)


def _after_fork_in_child() -> None:
    """The parent's exports are not this process's, and its locks may be held by nobody here."""
    global _changing
    _changing = threading.Lock()
    _live.clear()


os.register_at_fork(after_in_child=_after_fork_in_child)
