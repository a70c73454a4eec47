"""From an address to the pool of a manager that gave it out."""

from __future__ import annotations

from umfpy.core.extents import innermost
from umfpy.manager.held import HeldPool
from umfpy.manager.holdings import Holdings


def owner_of(address: object, holdings: Holdings) -> HeldPool | None:
    """Return the pool with these holdings whose page holds `address`; None if none does."""
    extent = innermost(address) if isinstance(address, int) else None
    while extent is not None:
        owner = extent.map.owner()
        if isinstance(owner, HeldPool) and owner.holdings() is holdings:
            return owner
        extent = extent.parent
    return None
