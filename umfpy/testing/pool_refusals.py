"""Checks that a pool takes back only what it gave, and that a refusal costs nothing."""

from __future__ import annotations

from umfpy.errors import InvalidArgument, StaleHandle
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject


@pool_check("freeing an address twice is refused")
def pool_double_free(subject: PoolSubject) -> None:
    subject.alloc(subject.unit)
    ptr = subject.alloc(subject.unit)
    subject.free(ptr)
    with subject.unchanged("a second free"):
        what = "the second free of an address"
        subject.refused(what, (InvalidArgument,), subject.pool.free, ptr)
        subject.refused(what, (InvalidArgument,), subject.pool.free, ptr, subject.unit)


@pool_check("freeing an Allocation twice is a StaleHandle")
def stale_allocation(subject: PoolSubject) -> None:
    allocation = subject.allocate(subject.unit)
    allocation.free()
    again = subject.allocate(subject.unit)
    with subject.unchanged("a second free of an Allocation"):
        subject.refused("the second free of an Allocation", (StaleHandle,), allocation.free)
    again.free()


@pool_check("freeing an address that the pool never gave is refused")
def pool_foreign_pointer(subject: PoolSubject) -> None:
    subject.alloc(subject.unit)
    buffer = bytearray(64)
    with subject.unchanged("a free of a foreign address"):
        for ptr in (id(buffer) & -64, 1, (1 << 64) - 1):
            what = f"free of the foreign address {ptr:#x}"
            subject.refused(what, (InvalidArgument,), subject.pool.free, ptr)


@pool_check("freeing from inside an allocation is refused, and the allocation stays")
def pool_interior_pointer(subject: PoolSubject) -> None:
    ptr = subject.alloc(4 * subject.unit)
    with subject.unchanged("a free inside an allocation"):
        for inside in (ptr + 1, ptr + subject.granule, ptr + 4 * subject.unit - 1):
            what = f"free {inside - ptr} bytes inside an allocation"
            subject.refused(what, (InvalidArgument,), subject.pool.free, inside)
    subject.free(ptr)


@pool_check("freeing with another size is refused, and the allocation stays")
def pool_wrong_size(subject: PoolSubject) -> None:
    size = 4 * subject.unit - 1
    ptr = subject.alloc(size)
    with subject.unchanged("a free with another size"):
        for other in (0, size - 1, size + 1, 8 * subject.unit, (1 << 64) - 1):
            what = f"free of {other} bytes where {size} were allocated"
            subject.refused(what, (InvalidArgument,), subject.pool.free, ptr, other)
    subject.free(ptr)


@pool_check("the address of an Allocation is not freed behind its back")
def owned_address(subject: PoolSubject) -> None:
    allocation = subject.allocate(subject.unit)
    with subject.unchanged("a free of an Allocation's address"):
        what = "free of an Allocation's address"
        subject.refused(what, (InvalidArgument,), subject.pool.free, allocation.ptr)
    allocation.free()


@pool_check("freeing nothing, 0 or None, is fine")
def free_nothing(subject: PoolSubject) -> None:
    subject.alloc(subject.unit)
    with subject.unchanged("a free of nothing"):
        subject.pool.free(0)
        subject.pool.free(None)
