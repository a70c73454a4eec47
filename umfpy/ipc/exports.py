"""The exporter's side: from any piece of memory to a handle on it."""

from __future__ import annotations

from dataclasses import dataclass

from umfpy.core.extents import Extent, ExtentMap, innermost
from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument, StaleHandle, UmfpyError
from umfpy.find import find
from umfpy.ipc.handle import IpcHandle
from umfpy.ipc.root_exports import exports_of

#: The part of an allocation's id that its map knows it by.
_IN_MAP = (1 << 64) - 1


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
        The allocation was freed, also by another thread in the middle of this call.
    NotSupported
        Its physical memory comes from a provider without IPC, such as private host memory.
    IpcError
        The driver refused; the message has its words.

    Notes
    -----
    The native export is of the whole physical root; of addresses that have memory only here and
    there, as a pool over virtual memory has them, it is of the chunks that the allocation lies
    in.  Who can open the handle can reach all of that.  It is made when the first piece of it is
    shared, and kept until any of that memory goes.  Any thread may call this.
    """
    piece = _piece_of(memory)
    try:
        handle = _handle_of(piece)
    except UmfpyError as error:
        if piece.live:
            raise
        raise piece.stale() from error
    if handle is None or not piece.live:
        raise piece.stale()
    return handle


def is_live(ptr: int, size: int) -> bool:
    """Return whether these bytes lie in one live allocation, of whatever pool on the way down."""
    extent = innermost(ptr)
    while extent is not None:
        known = extent.map.describe_in(extent, ptr)
        if known is not None and ptr + size <= known["base"] + known["size"]:
            return True
        extent = extent.parent
    return False


@dataclass(frozen=True)
class _Piece:
    """What is to be shared: ``size`` bytes at ``ptr``, the rest of an allocation from ``base`` on.

    ``space`` is the map that the allocation is in, ``id`` its id there.
    """

    ptr: int
    size: int
    base: int
    space: ExtentMap
    id: int

    @property
    def live(self) -> bool:
        """Whether the allocation is there, and has all these bytes."""
        known = self.space.describe(self.base)
        if known is None or known["id"] != self.id:
            return False
        return known["base"] + known["size"] >= self.ptr + self.size

    def range_in(self, root: Extent) -> tuple[int, int]:
        """Return (address, bytes) of what has to be exported of the root."""
        length = self.ptr + self.size - self.base
        return root.provider.ipc_range(self.base, length, (root.base, root.size))

    def stale(self) -> StaleHandle:
        return StaleHandle(
            f"the memory at {self.ptr:#x} was freed, or made smaller, while it was being exported"
        )


def _piece_of(memory: Allocation | int) -> _Piece:
    if isinstance(memory, Allocation):
        if memory.freed:
            raise StaleHandle(f"the allocation at {memory.ptr:#x} was freed; nothing to share")
        base = memory.ptr
        piece = _Piece(base, memory.size, base, memory.pool.map, memory.id & _IN_MAP)
    elif isinstance(memory, int):
        piece = _piece_at(memory)
    else:
        raise InvalidArgument(
            f"an Allocation or an address can be shared, not {type(memory).__name__}"
        )
    if piece.size == 0:
        raise InvalidArgument(f"the allocation at {piece.ptr:#x} has no bytes to share")
    return piece


def _piece_at(ptr: int) -> _Piece:
    """Return what is left of a live allocation from an address on."""
    extent = innermost(ptr) if ptr > 0 else None
    info = None if extent is None else find(ptr)
    if extent is None or info is None:
        raise InvalidArgument(
            f"{ptr:#x} lies in no live allocation of this process; what another process "
            "shared is passed on with its mapping's handle"
        )
    size = info.base + info.size - ptr
    return _Piece(ptr, size, info.base, extent.map, info.id & _IN_MAP)


def _handle_of(piece: _Piece) -> IpcHandle | None:
    """Return a handle on a piece; None if it was freed meanwhile.

    No memory is exported behind the back of whoever takes it away: that one withdraws what is
    exported of it after the last allocation there was freed, and before it is gone.  So an export
    is entered first, and made only if the allocation is there still; and if the provider has
    come to cut the memory in another way, as it does for parts of a root before they go, it is
    given back and made anew.
    """
    extent = innermost(piece.ptr)
    if extent is None:
        return None
    root = extent.root
    exports = exports_of(root)
    while True:
        base, size = piece.range_in(root)
        exported = exports.of(base, size)
        if not piece.live:
            return None
        try:
            named = exported.named()
        except InvalidArgument:
            if piece.range_in(root) == (base, size):
                raise
            named = None
        if named is not None and piece.range_in(root) == (base, size):
            return IpcHandle(named, piece.ptr - base, piece.size)
        exports.end(exported)
