"""Memory in a file that grows."""

from __future__ import annotations

import os
import weakref
from collections.abc import Sequence

from umfpy.arguments import check_flag, check_path
from umfpy.errors import InvalidArgument, IpcError, NotSupported
from umfpy.provider import Capability, Provider
from umfpy.providers.host.filemap import FileBacking
from umfpy.providers.host.mapped import MAPPED, HostAccess, MappedProvider
from umfpy.providers.host.named import open_alone
from umfpy.providers.host.pages import SYSTEM_PAGE, Pages
from umfpy.providers.host.payload import Payload
from umfpy.providers.host.sharing import Sharing, on_disk
from umfpy.providers.host.system import System


class FileProvider(MappedProvider):
    """Memory that lies in a file, mapped shared: mmap(2).

    The file grows as memory is asked for.  What is freed or decommitted becomes a hole in it
    (fallocate(2)) and is used again.  Every range is backed before it is handed out
    (posix_fallocate(3)), so that a full disk is an `OutOfMemoryError` and never SIGBUS.

    Parameters
    ----------
    path
        The file; made if it does not exist.  Nothing else may write to it.
    overwrite
        Use a file that has contents; they are lost.
    keep
        Leave the file where it is; otherwise `close` removes it, or the end of the provider.

    Raises
    ------
    InvalidArgument
        The path is a folder or a device, may not be written, has contents, or is in use by
        another provider; the message says which.
    NotSupported
        Its file system cannot make holes.

    Notes
    -----
    After fork(2) the file stays the parent's, as with shared `HostProvider`.
    """

    name = "file"
    capabilities = MAPPED | Capability.IPC

    def __init__(
        self, path: str | os.PathLike[str], *, overwrite: bool = False, keep: bool = True
    ) -> None:
        check_flag(overwrite, "overwrite")
        check_flag(keep, "keep")
        self.path = str(check_path(path, "path").absolute())
        system = System(self.name)
        fd = open_alone(system, self.path)
        try:
            _empty(self.path, fd, overwrite)
            file = FileBacking(system, fd, Pages(), reserve=True)
        except BaseException:
            os.close(fd)
            raise
        if not file.can_punch():
            file.close()
            raise NotSupported(
                f"the file system of {self.path!r} cannot make holes; use one that can, such as "
                "ext4, xfs, btrfs or tmpfs"
            )
        super().__init__(system, file, Sharing(system, on_disk, file, self.path))
        self._file = file
        self._unlink: weakref.finalize[[str, os.stat_result, int], FileProvider] | None = None
        if not keep:
            self._unlink = weakref.finalize(self, _unlink_own, self.path, os.fstat(fd), os.getpid())

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return path, offset and size of a piece, and which file it is.

        Raises
        ------
        IpcError
            The path leads to no file any more, or to another one: it was moved or removed.
        """
        self._check_path()
        return super().ipc_export(ptr, size)

    def memory_info(self) -> tuple[int, int]:
        """Return bytes (free, total) of the file system: fstatvfs(3).

        Raises
        ------
        InvalidArgument
            The provider is closed.
        """
        self._check_open()
        space = os.fstatvfs(self._file.fd)
        return space.f_bavail * space.f_frsize, space.f_blocks * space.f_frsize

    def close(self) -> None:
        """Let the file go when nothing is allocated any more; remove it unless it is kept."""
        if self._unlink is not None:
            self._unlink()
        super().close()

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Return what opens other processes' files; it has none of its own."""
        return FileImporter()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r})"

    def _leads_here(self) -> bool:
        return _leads_to(self.path, os.fstat(self._file.fd))

    def _check_path(self) -> None:
        if not self._leads_here():
            raise IpcError(
                f"{self.path!r} was moved or removed, so that no other process can open it; what "
                "is allocated stays usable here"
            )


def _leads_to(path: str, file: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), file)
    except OSError:
        return False


def _unlink_own(path: str, file: os.stat_result, owner: int) -> None:
    """Remove the file, unless this is a forked child or the path leads elsewhere by now."""
    if os.getpid() == owner and _leads_to(path, file):
        os.unlink(path)


class FileImporter(HostAccess):
    """Opens what a `FileProvider` of another process exported."""

    name = "file"
    capabilities = Capability.IPC | Capability.ZERO | Capability.COPY | Capability.HOST_ACCESS

    def __init__(self) -> None:
        super().__init__()
        self._sharing = Sharing(System(self.name), on_disk, None)

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Raise NotSupported: there is no file here."""
        raise NotSupported("this provider only opens files of other processes; use FileProvider")

    def free(self, ptr: int, size: int) -> None:
        """Raise InvalidArgument: nothing was allocated here."""
        raise InvalidArgument(f"{ptr:#x} is not memory of this provider; see ipc_close")

    def granularity(self, size: int = 0) -> int:
        """Return the page in bytes: sysconf(3) _SC_PAGESIZE."""
        return SYSTEM_PAGE

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Raise NotSupported: there is nothing to export."""
        return self._sharing.export(ptr, size)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported piece."""
        return Payload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map a piece of another process's file: open(2) by its path, mmap(2).

        Raises
        ------
        IpcError
            The file is gone or another one, or its provider or the piece is gone.
        """
        return self._sharing.open(payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned: munmap(2)."""
        self._sharing.close(ptr, size)


def _empty(path: str, fd: int, overwrite: bool) -> None:
    size = os.fstat(fd).st_size
    if size and not overwrite:
        raise InvalidArgument(
            f"{path!r} has {size} bytes, which would be lost; give overwrite=True or another path"
        )
    os.ftruncate(fd, 0)
