"""Taking an extent from a provider, and giving it back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from umfpy.errors import AlignmentError
from umfpy.provider import Capability

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap
    from umfpy.provider import Provider


def take_extent(space: ExtentMap, provider: Provider, size: int, alignment: int) -> None:
    """Add an extent of `size` bytes to the map; raise what the provider does, or the map.

    A provider that does not keep to the alignment is found out here: its memory would never
    serve the request, and be asked for again and again.
    """
    base = provider.alloc(size, alignment if alignment > provider.granule else 0)
    try:
        if alignment and base % alignment:
            raise AlignmentError(
                f"{provider!r} gave {base:#x} when asked for an alignment of {alignment} bytes"
            )
        space.add(base, size, provider, fresh=gives_zeros(provider))
    except BaseException:
        provider.free(base, size)
        raise


def gives_zeros(provider: Provider) -> bool:
    """Return whether what comes from the provider reads as zero."""
    return Capability.FRESH_ZERO in provider.capabilities


def give_back(extent: Extent) -> bool:
    """Return a wholly free extent to its provider; False if it is in use (again).

    It leaves the map first, so that nobody can take it while the driver works, and its address
    may come back from the driver at once.  If the provider fails, the extent is put back, and the
    provider's error is raised: trying again later may succeed.
    """
    if not extent.map.remove(extent):
        return False
    free_removed(extent)
    return True


def free_removed(extent: Extent) -> None:
    """Return an extent that has left its map already; if the provider fails, it comes back."""
    try:
        withdraw_export(extent)
        extent.provider.free(extent.base, extent.size)
    except BaseException:
        put_back(extent)
        raise


def put_back(extent: Extent) -> None:
    """Undo `ExtentMap.remove`; an export that was not given back stays with the memory."""
    extent.map.restore(extent)


def withdraw_export(extent: Extent, start: int | None = None, size: int = 0) -> None:
    """Give back what was exported of an extent, or of a part of it, before that memory goes.

    An export goes as a whole, also if only a part of its memory does: what other processes have
    open they keep, and who shares the rest of it from now on has a new one made.  What is freed
    already gets none: see `umfpy.ipc.export`.
    """
    if extent.export is not None:
        if start is None:
            start, size = extent.base, extent.size
        extent.export.withdraw(start, size)
