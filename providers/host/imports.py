"""The importer's side of IPC: a descriptor from another process, looked at before it is mapped."""

from __future__ import annotations

import fcntl
import mmap
import os
import stat
import threading
from collections.abc import Sequence

from umfpy.errors import DriverError, InvalidArgument, IpcError
from umfpy.providers.host.arguments import round_up
from umfpy.providers.host.foreign import duplicate, fetch_descriptor
from umfpy.providers.host.mapping import map_aligned
from umfpy.providers.host.payload import DIGEST_SIZE, Payload
from umfpy.providers.host.system import MAP_SHARED, System


def open_by_path(payload: Payload) -> int:
    """Return a new descriptor for a file that has a name, which another provider holds locked.

    Raises
    ------
    IpcError
        There is no such file any more, or no provider has it open.
    """
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        fd = os.open(payload.path, flags)
    except OSError as error:
        raise IpcError(
            f"cannot open the exported file {payload.path!r}: {os.strerror(error.errno or 0)}"
        ) from None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return fd
    os.close(fd)
    raise IpcError(
        f"no provider has {payload.path!r} open any more: process {payload.pid} ended or closed it"
    )


def check_file(fd: int, payload: Payload) -> None:
    """Raise IpcError unless `fd` is the exported file and the export is still valid."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise IpcError(f"descriptor {payload.fd} of process {payload.pid} is not a file")
    if (status.st_dev, status.st_ino) != (payload.dev, payload.inode):
        raise IpcError(
            f"the descriptor is of another file (inode {status.st_ino}) than the one exported "
            f"(inode {payload.inode})"
        )
    page = 1 << payload.page_shift
    needed = max(round_up(payload.offset + payload.size, page), payload.slot + DIGEST_SIZE)
    if status.st_size < needed:
        raise IpcError(f"the exported file has {status.st_size} bytes; the handle needs {needed}")
    if _read_slot(fd, payload.slot, page) != payload.digest():
        raise IpcError(
            "the exported memory was freed, its export was released, or the handle was changed "
            "on the way"
        )


def check_memory_file(fd: int) -> None:
    """Raise IpcError unless `fd` is shared memory that nobody can cut short under a reader.

    F_GET_SEALS answers on memfds and other files of tmpfs and hugetlbfs only (fcntl(2)).
    """
    try:
        seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
    except OSError:
        raise IpcError("the descriptor is of a file on disk, not of shared memory") from None
    if not seals & fcntl.F_SEAL_SHRINK:
        raise IpcError("the descriptor's memory is not sealed against shrinking")


def _read_slot(fd: int, slot: int, page: int) -> bytes:
    """Read a slot through a mapping, because files of huge pages cannot be read."""
    start = slot & -page
    try:
        with mmap.mmap(fd, page, offset=start, prot=mmap.PROT_READ) as table:
            return table[slot - start : slot - start + DIGEST_SIZE]
    except (OSError, ValueError) as error:
        raise IpcError(f"the exported memory cannot be mapped: {error}") from None


class Imports:
    """The mappings of other processes' memory in this one."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._lock = threading.Lock()
        self._lengths: dict[int, tuple[int, int]] = {}

    def __len__(self) -> int:
        return len(self._lengths)

    def open(self, payload: Payload, descriptors: Sequence[int]) -> int:
        """Return the address at which the exported range is mapped: mmap(2), MAP_SHARED."""
        fd = self._descriptor(payload, descriptors)
        page = 1 << payload.page_shift
        length = round_up(payload.size, page)
        try:
            if not payload.path:
                check_memory_file(fd)
            check_file(fd, payload)
            ptr = map_aligned(self._system, length, page, page, MAP_SHARED, fd, payload.offset)
        except DriverError as error:
            raise IpcError(f"the exported memory cannot be mapped: {error}") from error
        finally:
            os.close(fd)
        with self._lock:
            self._lengths[ptr] = payload.size, length
        return ptr

    def close(self, ptr: int, size: int) -> None:
        """Unmap what `open` returned.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes was opened at `ptr`, or it was closed already.
        """
        with self._lock:
            known, length = self._lengths.get(ptr, (0, 0))
            if not known or known != size:
                raise InvalidArgument(
                    f"no imported memory of {size} bytes at {ptr:#x}"
                    + (f"; it has {known} bytes" if known else "")
                )
            del self._lengths[ptr]
        try:
            self._system.call("munmap", ptr, length)
        except DriverError:
            with self._lock:
                self._lengths[ptr] = known, length
            raise

    def _descriptor(self, payload: Payload, descriptors: Sequence[int]) -> int:
        if len(descriptors) > 1:
            raise IpcError(f"{len(descriptors)} descriptors came with a handle that has one")
        if descriptors:
            return duplicate(descriptors[0])
        if payload.path:
            return open_by_path(payload)
        return fetch_descriptor(self._system, payload)
