"""IPC of a provider whose memory lies in one file: exports of its own, imports of others'."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from umfpy.errors import InvalidArgument, IpcError, NotSupported
from umfpy.providers.host.exports import Exports
from umfpy.providers.host.filemap import FileBacking
from umfpy.providers.host.imports import Imports
from umfpy.providers.host.payload import Payload
from umfpy.providers.host.system import System

#: Where named shared memory lives: shm_overview(7).
SHM_FOLDER = "/dev/shm"


def in_shared_memory(path: str) -> bool:
    """Return whether `path` is that of no file (a memfd) or of a named shared object."""
    folder, _, name = path.rpartition("/")
    return not path or (folder == SHM_FOLDER and name not in ("", ".", ".."))


def on_disk(path: str) -> bool:
    """Return whether `path` is absolute, as `FileProvider` exports it."""
    return path.startswith("/")


class Sharing:
    """The IPC half of a provider.

    Parameters
    ----------
    accepts
        Which paths in handles to open: a handle comes from outside, and must not lead this
        process to files that have nothing to do with shared memory.
    backing
        The file to export from; None for a provider that only imports.
    """

    def __init__(
        self,
        system: System,
        accepts: Callable[[str], bool],
        backing: FileBacking | None,
        path: str = "",
    ) -> None:
        self._accepts = accepts
        self._backing = backing
        self._exports = Exports(system, backing, path) if backing is not None else None
        self._imports = Imports(system)

    def export(self, offset: int, size: int) -> bytes:
        """Return a new payload for a range of the file."""
        exports, backing = self._own()
        backing.check_owner()
        return exports.export(offset, size)

    def release(self, payload: bytes) -> None:
        """End one export."""
        self._own()[0].release(payload)

    def descriptor(self) -> int:
        """Return the descriptor that goes with every payload."""
        fd = self._own()[1].fd
        if fd < 0:
            raise InvalidArgument("this provider is closed and nothing is allocated in it")
        return fd

    def forget(self, offset: int, size: int) -> None:
        """End all exports out of a range that is being freed, unless a parent still has it."""
        exports, backing = self._own()
        if backing.owned():
            exports.forget(offset, size)

    def open(self, payload: bytes, descriptors: Sequence[int]) -> int:
        """Map what another process exported."""
        parsed = Payload.unpack(payload)
        if not self._accepts(parsed.path):
            raise IpcError(
                f"this handle is of memory in {parsed.path or 'a memfd'!r}, which this provider "
                "does not open"
            )
        return self._imports.open(parsed, descriptors)

    def close(self, ptr: int, size: int) -> None:
        """Unmap what `open` returned."""
        self._imports.close(ptr, size)

    def imported(self) -> int:
        """Return how many mappings of other processes' memory are open."""
        return len(self._imports)

    def shut(self) -> None:
        """Let the exports' notes go, with the file."""
        if self._exports is not None:
            self._exports.close()

    def _own(self) -> tuple[Exports, FileBacking]:
        if self._exports is None or self._backing is None:
            raise NotSupported("this provider only opens memory of other processes")
        return self._exports, self._backing
