"""A provider whose addresses and memory are managed apart, whatever the driver."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError
from umfpy.provider import Capability, ChunkInfo, Location
from umfpy.providers.device import DeviceProvider
from umfpy.providers.host.arguments import check_request, check_unit
from umfpy.providers.host.pieces import Piece
from umfpy.providers.vmm.backing import Backing
from umfpy.providers.vmm.chunks import Chunk
from umfpy.units import parse_size

#: What every such provider can do.
APART = (
    Capability.SPLIT
    | Capability.COMMIT
    | Capability.PURGE_FORCE
    | Capability.DALLOC
    | Capability.ZERO
    | Capability.COPY
    | Capability.STREAMS
    | Capability.RESERVE
)

#: Times the memory of the device that is reserved at once: addresses cost nothing, and room
#: behind an allocation lets it grow.
SPANS = 4

#: Physical memory that is kept while it is not mapped is at most this part of the device's.
KEPT_PART = 64

#: Pieces count their origin from their reservation's base times this, so that those of two
#: reservations that happen to touch are never taken for neighbours.
_RESERVATION = 1 << 64


class VmmProvider(DeviceProvider):
    """Pieces of virtual memory, in front of a provider of the driver's that has the rest.

    The calls of the driver are given as CUDA's / Level Zero's.
    """

    _backing: Backing

    # Taking and giving back.

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes, backed and accessible; contents are anything.

        For each chunk memory that was kept, or cuMemCreate / zePhysicalMemCreate, and cuMemMap /
        zeVirtualMemMap; cuMemSetAccess once.  `alignment` may be any power of two; 0 gives at
        least the device's page.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            No memory or no addresses; the message says what the device has.
        DriverError
            Whatever else the driver answered.
        """
        return self._take(size, alignment, self._backing.take_backed, usable=True)

    def reserve(self, size: int, alignment: int = 0) -> int:
        """Return addresses for `size` bytes without memory behind them: a decommitted piece.

        `split` cuts it at multiples of `granularity`, and `commit` backs the parts.  Raises as
        `alloc`.
        """
        return self._take(size, alignment, self._backing.take, usable=False)

    def free(self, ptr: int, size: int) -> None:
        """Give a piece back, memory and addresses: cuMemUnmap / zeVirtualMemUnmap.

        The physical memory is kept for a while, or released: cuMemRelease / zePhysicalMemDestroy.

        Raises
        ------
        InvalidArgument
            No piece of `size` bytes starts at `ptr`: a double free, a foreign or interior pointer.
        DriverError
            The driver refused; the piece is still there.
        """
        with self._pieces.released(ptr, size):
            self._lost(self._backing.give(ptr, self._length(size)))
        self._close_if_unused()

    def extend(self, ptr: int, size: int, more: int) -> bool:
        """Let a piece grow in place, by `more` bytes; their contents are anything.

        Returns
        -------
        bool
            False if the addresses behind the piece are taken; nothing has changed then.

        Raises
        ------
        InvalidArgument
            Not a piece of `size` bytes, or a decommitted one; `more` is below 1.
        OutOfMemoryError
            The device has no such memory left; nothing has changed.
        """
        more, _ = check_request(more, 0, self.name)
        end = ptr + self._length(size)
        with self._pieces.coming(), self._pieces.released(ptr, size) as piece:
            self._check_usable(ptr, piece)
            try:
                grown = self._backing.extend(end, ptr + self._length(size + more) - end)
            except OutOfMemoryError as error:
                raise self._out_of_memory(more, error) from error
            self._pieces.add(ptr, replace(piece, size=size + more * grown))
        return grown

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Release physical memory that is kept for reuse, beyond `keep_bytes`.

        Returns the bytes that went.  Raises DriverError if the driver refuses; the rest is kept.
        """
        return self._backing.trim(parse_size(keep_bytes))

    # Units and pieces.

    def granularity(self, size: int = 0) -> int:
        """Return the device's page in bytes, or `chunk_size`: what pieces are cut at."""
        return self._backing.units.unit

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the bytes of most chunks of an allocation of `size`."""
        return self._backing.units.usual(size)

    def chunks(self, ptr: int, size: int) -> list[ChunkInfo]:
        """Return the chunks that lie wholly inside a range, by address.

        `size` counts in whole units of `granularity`, as it does for pieces.
        """
        found = self._backing.inside(ptr, self._length(size))
        return [ChunkInfo(chunk.ptr, chunk.size, chunk.shared) for chunk in found]

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Make two pieces of one, between two chunks.

        Raises
        ------
        InvalidArgument
            Not a piece of this provider; `first_size` is no multiple of `granularity` between 0
            and `size`, both excluded, or lies inside a chunk, whose boundaries are in the message.
        """
        if 0 < first_size < size:
            self._backing.check_cut(ptr + first_size)
        self._pieces.split(ptr, size, first_size, self.granularity())

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of `size` bytes out of two neighbours, also of two allocations.

        Raises
        ------
        InvalidArgument
            They do not touch, do not add up to `size`, are of two reservations, or only one of
            them is decommitted.
        """
        self._pieces.merge(low, high, size)

    # The life cycle.

    def dalloc(self, ptr: int, size: int) -> None:
        """Let nobody at a piece; `commit` makes it usable, contents kept.

        cuMemSetAccess / zeVirtualMemSetAccessAttribute, none.
        """
        with self._pieces.changed(ptr, size, usable=False):
            self._backing.hide(ptr, self._length(size))

    def decommit(self, ptr: int, size: int) -> None:
        """Give the memory of a piece back and keep its addresses; as `free`."""
        with self._pieces.changed(ptr, size, usable=False):
            self._lost(self._backing.drop(ptr, self._length(size)))

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        """Make a piece accessible: zeros after `decommit`, the old contents after `dalloc`.

        On a piece that is committed it does nothing.  Memory that is kept comes first, in the
        chunks that it is in, and then new memory, as with `alloc`.

        Parameters
        ----------
        clear
            False to leave what was decommitted with any contents: nothing is written.
        chunk_size
            Bytes of the new chunks, a multiple of `granularity`; at most 1 GiB is used, and what
            is left over makes up smaller ones.  None takes them as `alloc` does.  A provider with
            a `chunk_size` of its own keeps to that.

        Raises
        ------
        InvalidArgument
            Not a piece of this provider, or `chunk_size` is not possible.
        OutOfMemoryError
            The device has no such memory left; the piece stays as it was.
        """
        wanted = check_unit(chunk_size, self.granularity())
        zero = super().zero if clear else None
        with self._pieces.changed(ptr, size, usable=True) as piece:
            if piece.usable:
                return
            try:
                self._backing.commit(ptr, self._length(size), zero, wanted)
            except OutOfMemoryError as error:
                raise self._out_of_memory(size, error) from error

    def purge_force(self, ptr: int, size: int) -> None:
        """Make a piece read as zero: cuMemsetD8 / zeCommandListAppendMemoryFill.

        The memory stays: other memory would cost more calls, could not be had, and has to be
        cleared as well.
        """
        with self._pieces.changed(ptr, size) as piece:
            self._check_usable(ptr, piece)
            super().zero(ptr, size)

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        """Take the memory of whole pieces to other addresses: unmap it there, map it here.

        Parameters
        ----------
        sources
            (address, bytes) of pieces that nobody uses; they are decommitted afterwards.
        to, size
            A decommitted piece without memory, of as many bytes as the chunks of all sources
            have; it is committed afterwards, with their memory in that order.  Its contents may
            be anything.

        Raises
        ------
        InvalidArgument
            Not such pieces, or a chunk was exported: importers would see what comes there next.
        DriverError
            The driver refused; nothing has changed.  If it refuses to put the memory back as
            well, a source is as after `dalloc`: `commit` tries again.
        """
        ranges = [(ptr, self._length(length)) for ptr, length in sources]
        try:
            with contextlib.ExitStack() as held:
                for ptr, length in sources:
                    held.enter_context(self._pieces.changed(ptr, length, usable=False))
                held.enter_context(self._pieces.changed(to, size, usable=True))
                self._backing.move(ranges, to, self._length(size))
        except (DriverError, OutOfMemoryError):
            self._note_lost(sources)
            raise

    def _note_lost(self, pieces: Sequence[tuple[int, int]]) -> None:
        """Have pieces be as after `dalloc` whose memory the driver would not put back."""
        for ptr, length in pieces:
            if any(chunk.hidden for chunk in self._backing.within(ptr, self._length(length))):
                with self._pieces.changed(ptr, length, usable=False):
                    pass

    # Contents.

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros, on `stream`, else done when the call returns; not to what is decommitted."""
        self._pieces.check_usable(ptr, size)
        super().zero(ptr, size, stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy between addresses and host buffers; not to or from what is decommitted."""
        for side in (dst, src):
            if isinstance(side, int):
                self._pieces.check_usable(side, size)
        super().copy(dst, src, size, stream)

    # Questions.

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the device that this provider holds, those kept for reuse included."""
        return self._backing.handles.reserved_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of those that are kept for reuse, and behind no address."""
        return self._backing.handles.kept_bytes

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return what is known of an address; {} for foreign ones.

        Inside of a piece: ``base``, ``size``, ``memory_type``, ``committed``, ``page_size`` (the
        unit) and ``device``.  Else what the driver knows, as the driver's other providers say it.
        """
        found = self._pieces.find(ptr)
        if found is None:
            return super().properties(ptr)
        base, piece = found
        return {
            "base": base,
            "size": piece.size,
            "memory_type": self.memory_type,
            "committed": piece.usable,
            "page_size": self.granularity(),
            "device": self.device,
        }

    def _rest(self) -> None:
        self._backing.close()
        super()._rest()

    def _take(
        self, size: int, alignment: int, take: Callable[[int, int], int], *, usable: bool
    ) -> int:
        size, alignment = check_request(size, alignment, self.name)
        try:
            with self._pieces.coming():
                self._check_open()
                ptr = take(self._length(size), max(alignment, self._backing.units.page))
                origin = self._backing.reservation(ptr) * _RESERVATION + ptr
                self._pieces.add(ptr, Piece(size, origin, usable))
        except OutOfMemoryError as error:
            raise self._out_of_memory(size, error) from error
        finally:
            self._close_if_unused()
        return ptr

    def _length(self, size: int) -> int:
        return self._backing.units.length(size)

    def _check_usable(self, ptr: int, piece: Piece) -> None:
        if not piece.usable:
            raise InvalidArgument(f"the piece at {ptr:#x} is decommitted: commit it first")

    def _lost(self, chunks: Sequence[Chunk]) -> None:
        """Note that chunks have lost their addresses."""
