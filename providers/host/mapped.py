"""A provider of memory that the host can read and write, out of pages of the system."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from umfpy.errors import InvalidArgument, NotSupported, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability, Location, NativeError, Provider
from umfpy.providers.host.arguments import check_request, check_unit, round_up
from umfpy.providers.host.backed import Backed
from umfpy.providers.host.buffers import copy_host
from umfpy.providers.host.mapping import Backing
from umfpy.providers.host.payload import Payload
from umfpy.providers.host.pieces import Piece, Pieces
from umfpy.providers.host.sharing import Sharing
from umfpy.providers.host.system import PROT_NONE, PROT_READ_WRITE, System
from umfpy.units import format_size


class HostAccess(Provider):
    """`zero` and `copy` for memory that the host can touch: memset(3) and memmove(3).

    Both are done when they return, whatever stream they are given: no device works on such
    memory by itself.  Neither needs the interpreter's lock while it runs.
    """

    memory_type = "host"
    granule = 64  #: a cache line, so that two pieces never share one

    def __init__(self) -> None:
        self._pieces = Pieces()

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write `size` zero bytes at `ptr`.

        Fresh pages instead are not cheaper at any size: to drop 64 KiB to 256 MiB took three to
        six times as long as to clear them, and to touch fresh ones again a multiple of that.

        Raises
        ------
        InvalidArgument
            A negative size, or a range that was decommitted.
        """
        if Capability.ZERO not in self.capabilities:
            raise self._lacks(Capability.ZERO)
        self._check_range(ptr, size)
        ctypes.memset(ptr, 0, size)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy `size` bytes; the sides may overlap, and each is an address or a buffer.

        Raises
        ------
        InvalidArgument
            A negative size, a range that was decommitted, a buffer that is too small, or one
            that cannot be written.
        """
        if Capability.COPY not in self.capabilities:
            raise self._lacks(Capability.COPY)
        for side in (dst, src):
            self._check_range(side if isinstance(side, int) else 0, size)
        copy_host(dst, src, size)

    def _check_range(self, ptr: int, size: int) -> None:
        if size < 0:
            raise InvalidArgument(f"a size cannot be negative: {size}")
        self._pieces.check_usable(ptr, size)


class MappedProvider(HostAccess):
    """What `HostProvider` and `FileProvider` share: pieces of mappings and their life cycle.

    Every call may come from any thread.  Two calls on the same piece at the same time: one of
    them is refused with InvalidArgument.
    """

    def __init__(self, system: System, backing: Backing, sharing: Sharing | None) -> None:
        super().__init__()
        self._system = system
        self._backing = backing
        self._backed = Backed()
        self._sharing = sharing
        self._closing = threading.Lock()
        self._closed = False
        self._released = False

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes that read as zero: mmap(2).

        `alignment` may be any power of two; 0 gives at least a page.  The length mapped is
        `size` rounded up to `granularity`.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            The system or the file system has no such memory left.
        DriverError
            Any other errno of mmap(2) and what prepares it.
        """
        size, alignment = check_request(size, alignment, self.name)
        pages = self._backing.pages
        if size >= pages.recommended:
            alignment = max(alignment, pages.recommended)
        with self._coming(size, "allocate"):
            length = round_up(size, pages.size)
            ptr, offset = self._backing.map(length, alignment)
            self._backed.add(ptr, length)
            self._pieces.add(ptr, Piece(size, offset))
        return ptr

    @contextmanager
    def _coming(self, size: int, verb: str) -> Iterator[None]:
        """Count one more piece while the body makes it; a lack of memory says of what."""
        try:
            with self._pieces.coming():
                self._check_open()
                yield
        except OutOfMemoryError as error:
            raise OutOfMemoryError(
                f"{self.name} cannot {verb} {size} bytes ({format_size(size)}): {error}",
                requested=size,
                provider=self.name,
            ) from error
        finally:
            if self._closed:
                self._release_if_unused()

    def free(self, ptr: int, size: int) -> None:
        """Give a piece back, addresses and backing: munmap(2).

        Raises
        ------
        InvalidArgument
            No piece of `size` bytes starts at `ptr`: a double free, a foreign or interior pointer.
        OutOfMemoryError
            The piece lies inside a mapping and the process has no mapping left to cut it with.
        """
        with self._pieces.released(ptr, size) as piece:
            length = self._length(size)
            with self._backed.leaving(ptr, length):
                self._system.call("munmap", ptr, length)
            if self._sharing is not None:
                self._sharing.forget(piece.origin, size)
            self._backing.give_back(piece.origin, length)
        if self._closed:
            self._release_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the page size in bytes: sysconf(3) _SC_PAGESIZE, or the huge page's."""
        return self._backing.pages.size

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the page, or with transparent huge pages what the kernel makes them of."""
        return self._backing.pages.recommended

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Make two pieces of one; the kernel cuts a mapping when a part of it goes.

        Raises
        ------
        InvalidArgument
            Not a piece of this provider, or `first_size` is not a multiple of `granularity`
            between 0 and `size`, both excluded.
        """
        self._pieces.split(ptr, size, first_size, self._backing.pages.size)

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of `size` bytes out of two neighbours.

        Raises
        ------
        InvalidArgument
            They do not touch, do not add up to `size`, lie apart in the file behind them, or
            only one of them is decommitted.
        """
        self._pieces.merge(low, high, size)

    def dalloc(self, ptr: int, size: int) -> None:
        """Make a piece inaccessible: mprotect(2); `commit` makes it usable, contents kept."""
        with self._pieces.changed(ptr, size, usable=False):
            self._protect(ptr, self._length(size), PROT_NONE)

    def decommit(self, ptr: int, size: int) -> None:
        """Give the backing of a piece to the system; an access is a SIGSEGV until `commit`.

        mprotect(2), then MADV_DONTNEED or a hole in the file.
        """
        with self._pieces.changed(ptr, size, usable=False) as piece:
            length = self._length(size)
            self._protect(ptr, length, PROT_NONE)
            try:
                self._backing.drop(ptr, length, piece.origin)
            except UmfpyError:
                if piece.usable:
                    self._protect(ptr, length, PROT_READ_WRITE)
                raise
            self._backed.remove(ptr, length)

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        """Make a piece accessible: zeros after `decommit`, the old contents after `dalloc`.

        On a piece that is committed it does nothing.  Fresh pages are zero in any case, and
        there are no chunks to choose: `clear` and `chunk_size` save and change nothing.

        Raises
        ------
        InvalidArgument
            `chunk_size` is not a multiple of `granularity`.
        OutOfMemoryError
            The file system behind it is full; the piece stays decommitted.
        """
        check_unit(chunk_size, self._backing.pages.size)
        with self._pieces.changed(ptr, size, usable=True) as piece:
            if piece.usable:
                return
            length = self._length(size)
            for start, end in self._backed.spoiled(ptr, length):
                self._backing.drop(start, end - start, piece.origin + start - ptr)
            self._backing.back(piece.origin, length)
            self._protect(ptr, length, PROT_READ_WRITE)
            self._backed.add(ptr, length)

    def purge_force(self, ptr: int, size: int) -> None:
        """Make a piece read as zero; its memory is the system's until it is touched again."""
        with self._pieces.changed(ptr, size) as piece:
            self._check_accessible(ptr, piece)
            self._backing.clear(ptr, self._length(size), piece.origin)

    def ipc_range(self, ptr: int, size: int, root: tuple[int, int]) -> tuple[int, int]:
        """Return the root, if it is one piece with memory; else the pages that the range is in."""
        base, length = root
        found = self._pieces.find(base)
        if found is not None and found[1].usable and (found[0], found[1].size) == root:
            return root
        unit = self.granularity()
        low = (ptr - base) // unit * unit
        high = min(round_up(ptr - base + size, unit), length)
        return base + low, high - low

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to map the piece at `ptr`, or whole pages of one.

        It names this process, its descriptor, and the file's inode, offset and size.  What an
        importer maps lives as long as its mapping, whatever becomes of this process; what it
        reads there after the piece was freed is zeros or newer data.

        Raises
        ------
        InvalidArgument
            Neither a piece of this provider nor whole pages of one, or decommitted.
        OutOfMemoryError
            No room for the note in the file that the export is valid.
        NotSupported
            The memory is private, or belongs to the process that this one was forked from.
        """
        sharing = self._shared()
        base, piece = self._piece_around(ptr, size)
        self._check_accessible(base, piece)
        return sharing.export(piece.origin + ptr - base, size)

    def _piece_around(self, ptr: int, size: int) -> tuple[int, Piece]:
        """Return the piece that whole pages are in; InvalidArgument if they are not in one."""
        found = self._pieces.find(ptr)
        if found is not None and size > 0:
            base, piece = found
            unit, start, end = self.granularity(), ptr - base, ptr - base + size
            ends_well = end == piece.size or (end < piece.size and end % unit == 0)
            if start % unit == 0 and ends_well:
                return found
        return ptr, self._pieces.at(ptr, size, "piece")

    def ipc_release(self, payload: bytes) -> None:
        """End an export: who opens it later is told so."""
        self._shared().release(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        """Return the file's descriptor, the only one there is."""
        return (self._shared().descriptor(),)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported piece."""
        return Payload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's piece; without its descriptor by name or out of its process.

        Raises
        ------
        IpcError
            See `Provider.ipc_open`; the message says what to allow.
        """
        return self._shared().open(payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned: munmap(2)."""
        self._shared().close(ptr, size)

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return base, size and backing of the piece around `ptr`; {} for foreign addresses."""
        found = self._pieces.find(ptr)
        if found is None:
            return {}
        base, piece = found
        pages = self._backing.pages
        return {
            "base": base,
            "size": piece.size,
            "memory_type": self.memory_type,
            "committed": piece.usable,
            "page_size": pages.size,
            "huge_pages": pages.huge or pages.transparent,
            "offset": piece.origin if self._sharing is not None else None,
        }

    def native_error(self) -> NativeError | None:
        """Return the last errno of this provider's calls in this thread."""
        return self._system.last_error()

    def live_count(self) -> int:
        """Return how many pieces are allocated: 0 when everything was freed."""
        return len(self._pieces)

    def close(self) -> None:
        """Let go of files as soon as nothing is allocated; what is stays valid and freeable."""
        self._closed = True
        self._release_if_unused()

    def _release_if_unused(self) -> None:
        with self._closing:
            if self._released or len(self._pieces):
                return
            self._released = True
        if self._sharing is not None:
            self._sharing.shut()
        self._backing.close()

    def _shared(self) -> Sharing:
        if self._sharing is None:
            raise NotSupported(
                "private memory cannot be opened by another process; "
                "use HostProvider(shared=True) for memory that can"
            )
        return self._sharing

    def _check_open(self) -> None:
        if self._closed:
            raise InvalidArgument(f"provider {self.name!r} is closed; make a new one")

    def _length(self, size: int) -> int:
        return round_up(size, self._backing.pages.size)

    def _protect(self, ptr: int, length: int, protection: int) -> None:
        self._system.call("mprotect", ptr, length, protection)

    def _check_accessible(self, ptr: int, piece: Piece) -> None:
        if not piece.usable:
            raise InvalidArgument(f"the piece at {ptr:#x} is decommitted: commit it first")


#: What every mapping can do.
MAPPED = (
    Capability.SPLIT
    | Capability.COMMIT
    | Capability.PURGE_FORCE
    | Capability.DALLOC
    | Capability.ZERO
    | Capability.COPY
    | Capability.HOST_ACCESS
    | Capability.FRESH_ZERO
)
