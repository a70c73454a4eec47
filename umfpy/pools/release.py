"""Giving an extent back to where it came from."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from umfpy.core.extents import Extent


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
    again = extent.map.add(extent.base, extent.size, extent.provider)
    again.export = extent.export


def withdraw_export(extent: Extent) -> None:
    """Give the extent's export back, before its memory goes; see `umfpy.ipc`."""
    if extent.export is not None:
        extent.export.release()
        extent.export = None
