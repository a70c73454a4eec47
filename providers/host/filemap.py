"""The backing of shared memory: one file that grows, its offsets used again."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import weakref

from umfpy.errors import DriverError, NotSupported, UmfpyError
from umfpy.providers.host.mapping import map_aligned
from umfpy.providers.host.pages import Pages, place_pages
from umfpy.providers.host.ranges import FreeRanges
from umfpy.providers.host.system import (
    FALLOC_FL_KEEP_SIZE,
    FALLOC_FL_PUNCH_HOLE,
    FALLOC_FL_ZERO_RANGE,
    MAP_SHARED,
    System,
)


class FileBacking:
    """Ranges of one open file, mapped shared.

    One descriptor serves any number of allocations, so that they never run out.  The file
    never gets shorter; what is freed becomes a hole and is used again.

    Parameters
    ----------
    fd
        An open, empty file; closed by `close`.
    reserve
        Back each range when it is mapped, so that a full file system is an error from `map` and
        never SIGBUS on access.  A memfd needs none: no file system bounds it.
    limit
        Refuse what is longer than this, in bytes.  For a memfd, whose memory the kernel counts
        only when it is touched: more than the machine has would end in its out-of-memory killer.
    """

    def __init__(
        self,
        system: System,
        fd: int,
        pages: Pages,
        nodes: tuple[int, ...] = (),
        *,
        reserve: bool,
        limit: int | None = None,
    ) -> None:
        self._system = system
        self.fd = fd
        self.pages = pages
        self._nodes = nodes
        self._reserve = reserve
        self._limit = limit
        self._lock = threading.Lock()
        self._free = FreeRanges()
        self._end = 0
        self._unpunched: list[tuple[int, int]] = []
        self._owner = os.getpid()
        self._close = weakref.finalize(self, os.close, fd)
        # At exit the system closes it; memory may still be freed after such finalizers have run,
        # and must not meet another file under the same number.
        self._close.atexit = False

    def map(self, length: int, alignment: int) -> tuple[int, int]:
        """Return address and offset of `length` bytes that read as zero."""
        self.check_owner()
        offset = self.take(length)
        ptr = 0
        try:
            page = self.pages.size
            ptr = map_aligned(self._system, length, alignment, page, MAP_SHARED, self.fd, offset)
            place_pages(self._system, ptr, length, self.pages, self._nodes)
        except UmfpyError:
            if ptr:
                self._system.call("munmap", ptr, length)
            self.give_back(offset, length)
            raise
        return ptr, offset

    def drop(self, ptr: int, length: int, offset: int) -> None:
        """Make a hole: fallocate(2) with FALLOC_FL_PUNCH_HOLE."""
        self.check_owner()
        self._punch(offset, length)

    def back(self, offset: int, length: int) -> None:
        """Fill a hole with zeros that are really there, where the file system is bounded."""
        self.check_owner()
        if self._reserve:
            self._system.reserve_blocks(self.fd, offset, length)

    def clear(self, ptr: int, length: int, offset: int) -> None:
        """Let the contents go, but not a reservation: without one an access may raise SIGBUS.

        With a reservation the blocks become unwritten (FALLOC_FL_ZERO_RANGE); tmpfs cannot do
        that, and there zeros are written.
        """
        self.check_owner()
        if not self._reserve:
            self._punch(offset, length)
            return
        mode = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE
        try:
            self._system.call("fallocate", self.fd, mode, offset, length)
        except DriverError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            ctypes.memset(ptr, 0, length)

    def close(self) -> None:
        """Close the file, once; mappings of other processes stay."""
        self.fd = -1
        self._close()

    def can_punch(self) -> bool:
        """Return whether the file system makes holes; tried past the end, where nothing is."""
        try:
            self._punch(self._end, self.pages.size)
        except DriverError as error:
            if error.code != errno.EOPNOTSUPP:
                raise
            return False
        return True

    def take(self, length: int) -> int:
        """Return the offset of `length` bytes that are nobody's and read as zero."""
        if self._limit is not None and length > self._limit:
            raise self._system.failed("mmap", errno.ENOMEM)
        with self._lock:
            self._punch_again()
            offset = self._free.take(length)
            if offset is None:
                offset = self._grow(length)
            elif self._reserve:
                self._reserve_or_free(offset, length)
            return offset

    def give_back(self, offset: int, length: int) -> None:
        """Make the range a hole that `take` may use again; in a forked child it is the parent's.

        This must not fail, because the addresses are gone already: if the hole cannot be made
        now, the range stays nobody's until a later call makes it.
        """
        if not self.owned():
            return
        with self._lock:
            self._unpunched.append((offset, length))
            self._punch_again()

    def owned(self) -> bool:
        """Return False in a process that got this file by fork(2)."""
        return os.getpid() == self._owner

    def check_owner(self) -> None:
        """Raise NotSupported in a process that got this file by fork(2)."""
        if not self.owned():
            raise NotSupported(
                f"this shared memory belongs to process {self._owner}, which was forked; make a "
                "new provider in the child, or start children with the spawn method"
            )

    def _grow(self, length: int) -> int:
        offset = self._free.take_last(self._end)
        end = offset + length
        try:
            if self._reserve:
                self._reserve_in_full(offset, length)
            else:
                self._system.call("ftruncate", self.fd, end)
        except UmfpyError:
            if offset < self._end:
                self._free.add(offset, self._end)
            raise
        self._end = end
        return offset

    def _reserve_or_free(self, offset: int, length: int) -> None:
        try:
            self._reserve_in_full(offset, length)
        except UmfpyError:
            self._free.add(offset, offset + length)
            raise

    def _reserve_in_full(self, offset: int, length: int) -> None:
        """Back a range, or leave the file as it was."""
        space = os.fstatvfs(self.fd)
        # Asking first spares others a file system that is full until the kernel gives up.
        if length > space.f_bavail * space.f_frsize > 0:
            raise self._system.failed("posix_fallocate", errno.ENOSPC)
        try:
            self._system.reserve_blocks(self.fd, offset, length)
        except UmfpyError:
            if os.fstat(self.fd).st_size > self._end:
                self._system.call("ftruncate", self.fd, self._end)
            if offset < self._end:
                self._punch(offset, min(length, self._end - offset))
            raise

    def _punch(self, offset: int, length: int) -> None:
        mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
        self._system.call("fallocate", self.fd, mode, offset, length)

    def _punch_again(self) -> None:
        while self._unpunched:
            offset, length = self._unpunched[-1]
            try:
                self._punch(offset, length)
            except UmfpyError:
                return
            self._unpunched.pop()
            self._free.add(offset, offset + length)
