"""Device memory whose addresses and backing are managed apart."""

from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any

from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability, Location
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.pieces import Piece
from umfpy.providers.host.system import System
from umfpy.providers.level_zero.base import LevelZeroBase
from umfpy.providers.level_zero.chunks import Chunk, ChunkMapper
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.reservation import Reservation, reserve, serial_of

#: An allocation has about this many chunks at most: each costs three calls of the driver, and
#: what is lost by rounding up is at most one part in as many.
_MOST_CHUNKS = 64


class LevelZeroVmmProvider(LevelZeroBase):
    """Device memory out of virtual memory management: parts of an allocation come and go.

    Addresses are reserved (zeVirtualMemReserve), and chunks of physical memory
    (zePhysicalMemCreate) mapped there.  What can be split off, dropped and brought back is a
    chunk: `granularity` of the size that was allocated.

    Parameters
    ----------
    device
        The device's index through all drivers, its UUID in hexadecimal, or its name.
    context
        As for `LevelZeroProvider`.

    Raises
    ------
    DriverUnavailable, InvalidArgument
        As for `LevelZeroProvider`.

    Notes
    -----
    Level Zero's core has no handles of physical memory for other processes, and so no IPC.
    """

    name = "level_zero_vmm"
    driver = "level_zero"
    memory_type = "device"
    capabilities = (
        Capability.SPLIT
        | Capability.COMMIT
        | Capability.PURGE_FORCE
        | Capability.DALLOC
        | Capability.ZERO
        | Capability.COPY
        | Capability.STREAMS
    )

    def __init__(self, device: int | str = 0, *, context: int | None = None) -> None:
        super().__init__(device, context, 0)
        self.device = self._device.index
        self._system = System(self.name)
        self._mapper = ChunkMapper(
            self._driver, self._context.handle, self._device, self._leftovers
        )
        self._lock = threading.Lock()
        self._serials = itertools.count(1)
        self._reservations: dict[int, Reservation] = {}

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes, backed and accessible.

        zeVirtualMemReserve, then zePhysicalMemCreate and zeVirtualMemMap for each chunk.
        `alignment` may be any power of two; 0 gives at least the page of virtual memory.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            No addresses, or no memory of the device or the host; the message says which.
        DriverError
            Whatever else the driver answered.
        """
        size, alignment = check_request(size, alignment, self.name)
        with self._pieces.coming():
            self._check_open()
            try:
                reservation = self._reserve(size, alignment)
            except OutOfMemoryError as error:
                raise self._out_of_memory(size, error) from error
            except DriverError as error:
                if error.code == Result.ZE_RESULT_ERROR_UNSUPPORTED_SIZE:
                    raise self._out_of_memory(size, error) from error
                raise
            with self._lock:
                self._reservations[reservation.serial] = reservation
            self._pieces.add(reservation.ptr, Piece(size, reservation.origin))
        return reservation.ptr

    def free(self, ptr: int, size: int) -> None:
        """Give a piece back: zeVirtualMemUnmap, zePhysicalMemDestroy.

        The addresses go with the last piece of the allocation: zeVirtualMemFree.

        Raises
        ------
        InvalidArgument
            No piece of `size` bytes starts at `ptr`: a double free, a foreign or interior pointer.
        DriverError
            The driver refused; the piece is still there.
        """
        with self._pieces.released(ptr, size) as piece:
            reservation = self._reservation(piece)
            self._mapper.drop(reservation.part(piece.origin, size))
            self._leave(reservation, round_up(size, reservation.unit))
        if self._closed:
            self._release_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the unit in bytes of an allocation of that size: one chunk.

        zeVirtualMemQueryPageSize, and for large allocations a larger power of two.
        """
        share = max(size // _MOST_CHUNKS, 1)
        return max(self._page_size(size), 1 << (share.bit_length() - 1))

    def recommended_granularity(self, size: int = 0) -> int:
        """Return at least the page for that size, without a size the device's largest."""
        return max(self.granularity(size), self._recommended_page(size))

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Make two pieces of one, at a multiple of `granularity` of what was allocated.

        Raises
        ------
        InvalidArgument
            Not a piece of this provider, or `first_size` is no such multiple between 0 and
            `size`, both excluded.
        """
        found = self._pieces.find(ptr)
        self._pieces.split(ptr, size, first_size, self._unit(found[1]) if found else 1)

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of `size` bytes out of two neighbours of one allocation.

        Raises
        ------
        InvalidArgument
            They do not touch, do not add up to `size`, were allocated apart, or only one of them
            is decommitted.
        """
        self._pieces.merge(low, high, size)

    def dalloc(self, ptr: int, size: int) -> None:
        """Make a piece inaccessible; `commit` makes it usable, contents kept.

        zeVirtualMemSetAccessAttribute, none.
        """
        with self._pieces.changed(ptr, size, usable=False) as piece:
            self._mapper.forbid(self._part(piece))

    def decommit(self, ptr: int, size: int) -> None:
        """Give the memory of a piece back and keep its addresses.

        zeVirtualMemUnmap, zePhysicalMemDestroy.
        """
        with self._pieces.changed(ptr, size, usable=False) as piece:
            self._mapper.drop(self._part(piece))

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        """Make a piece accessible: zeros after `decommit`, the old contents after `dalloc`.

        On a piece that is committed it does nothing.

        Raises
        ------
        OutOfMemoryError
            The device has no such memory left; the piece stays as it was.
        """
        with self._pieces.changed(ptr, size, usable=True) as piece:
            if not piece.usable:
                self._commit(self._part(piece))

    def purge_force(self, ptr: int, size: int) -> None:
        """Make a piece read as zero: zeCommandListAppendMemoryFill.

        The memory stays: to give it back and take other could fail half-way.  `decommit` gives
        it back.
        """
        with self._pieces.changed(ptr, size) as piece:
            if not piece.usable:
                raise InvalidArgument(f"the piece at {ptr:#x} is decommitted: commit it first")
            super().zero(ptr, size)

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros, as `LevelZeroProvider.zero`; refused for what is decommitted."""
        self._pieces.check_usable(ptr, size)
        super().zero(ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy, as `LevelZeroProvider.copy`; refused for what is decommitted."""
        for side in (dst, src):
            if isinstance(side, int):
                self._pieces.check_usable(side, size)
        super().copy(dst, src, size, stream)

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return what is known of the piece around `ptr`; {} for foreign addresses.

        ``base``, ``size``, ``memory_type``, ``committed``, ``page_size`` (the chunk), ``device``
        and ``context``.
        """
        found = self._pieces.find(ptr)
        if found is None:
            return {}
        base, piece = found
        return {
            "base": base,
            "size": piece.size,
            "memory_type": self.memory_type,
            "committed": piece.usable,
            "page_size": self._unit(piece),
            "device": self.device,
            "context": self._context.handle,
        }

    def _reserve(self, size: int, alignment: int) -> Reservation:
        """Return addresses with memory behind them."""
        unit = self.granularity(size)
        length = round_up(size, unit)
        context = self._context.handle
        wanted = max(alignment, self._page_size(size))
        where = self._driver, self._system, context
        ptr, native = reserve(*where, length, wanted, self._page_size)
        reservation = Reservation(next(self._serials), ptr, length, unit, native)
        try:
            self._mapper.back(reservation.chunks)
        except BaseException:
            self._leftovers.give_back("zeVirtualMemFree", context, *native)
            raise
        return reservation

    def _commit(self, part: list[Chunk]) -> None:
        hidden = [chunk for chunk in part if chunk.physical]
        self._mapper.allow(hidden)
        fresh: list[Chunk] = []
        try:
            fresh = self._mapper.back(part)
            for chunk in fresh:
                chunk.unclean = True
            for chunk in part:
                if chunk.unclean:
                    super().zero(chunk.ptr, chunk.size)
                    chunk.unclean = False
        except BaseException:
            for undo, chunks in ((self._mapper.drop, fresh), (self._mapper.forbid, hidden)):
                with contextlib.suppress(UmfpyError):
                    undo(chunks)
            raise

    def _leave(self, reservation: Reservation, length: int) -> None:
        """Take a freed piece off its reservation, and give that back with the last."""
        with self._lock:
            reservation.live -= length
            if reservation.live:
                return
            del self._reservations[reservation.serial]
        self._leftovers.give_back("zeVirtualMemFree", self._context.handle, *reservation.native)

    def _reservation(self, piece: Piece) -> Reservation:
        return self._reservations[serial_of(piece.origin)]

    def _unit(self, piece: Piece) -> int:
        """Return the chunk of the piece's reservation; 1 if that goes at this moment."""
        found = self._reservations.get(serial_of(piece.origin))
        return found.unit if found else 1

    def _part(self, piece: Piece) -> list[Chunk]:
        return self._reservation(piece).part(piece.origin, piece.size)

    def __repr__(self) -> str:
        return f"LevelZeroVmmProvider({self._device.index})"
