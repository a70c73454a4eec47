"""From an address to everything that is known of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from umfpy.arguments import check_number
from umfpy.core.extents import innermost
from umfpy.core.pool import BasePool

if TYPE_CHECKING:
    from umfpy.provider import Provider


@dataclass(frozen=True)
class AllocationInfo:
    """A live allocation, found by one of its addresses."""

    base: int  #: where it starts
    size: int  #: bytes, as requested
    offset: int  #: of the address asked about, from `base`
    pool: BasePool | None  #: None for a piece that a `CoarseProvider` gave out by itself
    layout_pool: BasePool | None  #: which of `pool`'s own, if it is a `MemoryManager` or `SlabPool`
    provider: Provider
    id: int  #: no other allocation of this process has it, before or after
    memory_type: str  #: "device", "host", "managed" or "shared"
    device: int  #: the device's ordinal, -1 for host memory

    @property
    def properties(self) -> dict[str, Any]:
        """What the provider knows of the memory, asked now: see `Provider.properties`.

        Keys and values are the provider's own: its custom properties.  Where providers lie over
        each other, the lowest answers, about the memory that it gave.  Empty once that is freed.
        """
        return self.provider.properties(self.base)

    @property
    def context(self) -> Any:
        """The driver's context of the memory, asked now; None where there is no such thing.

        An integer in CUDA, a ``pyopencl.Context`` in OpenCL.
        """
        return self.properties.get("context")


def find(ptr: int) -> AllocationInfo | None:
    """Return the live allocation that `ptr` lies in, or None.

    Any address of an allocation will do, up to its last requested byte.  Where pools nest, the
    innermost answers: the one that gave the memory to its user.  Raises InvalidArgument for what is
    no number.
    """
    if type(ptr) is not int:
        ptr = check_number(ptr, "ptr", least=None)
    extent = innermost(ptr)
    if extent is None:
        return None
    owner = extent.map.owner()
    known = extent.map.describe_in(extent, ptr)
    if owner is None or known is None or ptr - known["base"] >= max(known["size"], 1):
        return None
    inner = owner if isinstance(owner, BasePool) else None
    manager = getattr(inner, "manager", None)  # None, too, once the manager is gone
    pool = inner if manager is None else manager
    provider = owner if pool is None else pool.provider
    return AllocationInfo(
        base=known["base"],
        size=known["size"],
        offset=ptr - known["base"],
        pool=pool,
        layout_pool=None if manager is None else inner,
        provider=provider,
        id=owner.serial << 64 | known["id"],
        memory_type=provider.memory_type,
        device=provider.device,
    )
