"""Host memory: private, or shared with other processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterable

from umfpy.arguments import check_flag
from umfpy.errors import InvalidArgument
from umfpy.provider import Capability, Provider
from umfpy.providers.host.filemap import FileBacking
from umfpy.providers.host.mapped import MAPPED
from umfpy.providers.host.mapping import AnonymousBacking
from umfpy.providers.host.memory import available_and_total, total_with_swap
from umfpy.providers.host.named import create_named
from umfpy.providers.host.pages import Pages, check_nodes, choose_pages
from umfpy.providers.host.reserving import ReservingProvider
from umfpy.providers.host.sharing import Sharing, in_shared_memory
from umfpy.providers.host.system import (
    MADV_FREE,
    MFD_ALLOW_SEALING,
    MFD_CLOEXEC,
    MFD_HUGETLB,
    System,
)

#: fcntl(2): F_ADD_SEALS with F_SEAL_SHRINK and F_SEAL_SEAL.
_F_ADD_SEALS = 1033
_SEALS = 0x0001 | 0x0002


class HostProvider(ReservingProvider):
    """Memory of the host: mmap(2), private to this process or shared with others.

    Parameters
    ----------
    shared
        Memory that other processes can open (`Capability.IPC`), in one memfd that grows; what is
        freed becomes a hole in it and is used again.
    huge_pages
        False; ``"transparent"`` (madvise(2) MADV_HUGEPAGE); ``"2MiB"`` or ``"1GiB"`` out of the
        pages that the administrator has set aside (mmap(2) MAP_HUGETLB).
    numa_nodes
        Bind the memory to these NUMA nodes (mbind(2) MPOL_BIND).
    name
        Keep shared memory in the named object ``/dev/shm/NAME`` in place of a memfd, so that
        importers need no right to this process's descriptors.  The name goes at `close`, or when
        the interpreter ends; one left behind by a killed process is taken over.

    Raises
    ------
    InvalidArgument
        A name without ``shared``, or with huge pages; one in use; a node that is not online.
    NotSupported
        The kernel does not offer the pages.

    Notes
    -----
    After fork(2), private memory works in the child as a copy.  Shared memory stays the
    parent's: the child can read and write what it has, and free its own addresses of it, but
    `alloc`, `decommit`, `purge_force` and `ipc_export` raise NotSupported.
    """

    name = "host"

    def __init__(
        self,
        shared: bool = False,
        *,
        huge_pages: bool | str = False,
        numa_nodes: Iterable[int] | None = None,
        name: str | None = None,
    ) -> None:
        check_flag(shared, "shared")
        if name is not None and (not shared or huge_pages in ("2MiB", "1GiB")):
            raise InvalidArgument("a name needs shared=True, and pages of the system's own size")
        system = System(self.name)
        pages = choose_pages(huge_pages, shared=shared)
        nodes = check_nodes(numa_nodes)
        self._unlink: weakref.finalize[[str, int], HostProvider] | None = None
        if not shared:
            super().__init__(system, AnonymousBacking(system, pages, nodes), None)
            self.capabilities = _private_capabilities(pages)
            return
        if name is None:
            path, fd = "", _memory_file(system, pages)
        else:
            fd, path = create_named(system, name)
            self._unlink = weakref.finalize(self, _unlink_own, path, os.getpid())
        limit = None if path else total_with_swap()
        file = FileBacking(system, fd, pages, nodes, reserve=bool(path), limit=limit)
        super().__init__(system, file, Sharing(system, in_shared_memory, file, path))
        self.capabilities = MAPPED | Capability.IPC

    def purge_lazy(self, ptr: int, size: int) -> None:
        """Let the kernel take the contents when it is short of memory: madvise(2) MADV_FREE.

        A byte written afterwards stays.  On shared memory and huge pages the kernel has no such
        thing, and the capability is not announced.
        """
        if Capability.PURGE_LAZY not in self.capabilities:
            raise self._lacks(Capability.PURGE_LAZY)
        with self._pieces.changed(ptr, size) as piece:
            self._check_accessible(ptr, piece)
            self._system.call("madvise", ptr, self._length(size), MADV_FREE)

    def memory_info(self) -> tuple[int, int]:
        """Return bytes (available, total) of the machine: proc_meminfo(5)."""
        return available_and_total()

    def close(self) -> None:
        """Drop the name at once, the file when nothing is allocated any more."""
        if self._unlink is not None:
            self._unlink()
        super().close()

    def __repr__(self) -> str:
        shared = "shared=True" if Capability.IPC in self.capabilities else ""
        return f"{type(self).__name__}({shared})"

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Return a provider that opens shared host memory of other processes."""
        return cls(shared=True)


def _private_capabilities(pages: Pages) -> Capability:
    if not pages.huge:
        return MAPPED | Capability.PURGE_LAZY | Capability.RESERVE
    if pages.can_drop:
        return MAPPED
    return MAPPED & ~(Capability.COMMIT | Capability.PURGE_FORCE | Capability.DALLOC)


def _memory_file(system: System, pages: Pages) -> int:
    """Return a new memfd that nobody can cut short, so that no importer meets SIGBUS."""
    flags = MFD_CLOEXEC | MFD_ALLOW_SEALING | (MFD_HUGETLB | pages.flags if pages.huge else 0)
    fd = system.call("memfd_create", b"umfpy", flags)
    try:
        _seal(system, fd)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _seal(system: System, fd: int) -> None:
    try:
        fcntl.fcntl(fd, _F_ADD_SEALS, _SEALS)
    except OSError as error:
        raise system.failed("fcntl", error.errno or 0) from None


def _unlink_own(path: str, owner: int) -> None:
    """Remove the name, unless this is a forked child or somebody has removed it already."""
    if os.getpid() == owner:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
