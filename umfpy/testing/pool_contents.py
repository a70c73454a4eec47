"""Checks of what is read back from a pool's memory."""

from __future__ import annotations

from umfpy.errors import NotSupported
from umfpy.provider import Capability
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import expect


@pool_check("what is written to an allocation stays until it is freed, whatever happens to others")
def pool_keeps_contents(subject: PoolSubject) -> None:
    sizes = [subject.granule * (1 + i % 4) + i for i in range(8)]
    pointers = [subject.alloc(size) for size in sizes]
    for ptr, size in zip(pointers, sizes, strict=True):
        subject.fill(ptr, size, ptr)
    for ptr in pointers[1::2]:
        subject.free(ptr)
    for size in sizes:
        subject.fill(subject.alloc(size), size, "other")
    for ptr, size in list(zip(pointers, sizes, strict=True))[::2]:
        subject.expect_pattern(ptr, size, ptr, "the bytes that were written")


@pool_check("zero=True gives zeros, also where others have been", needs=Capability.ZERO)
def zero_request(subject: PoolSubject) -> None:
    size = 2 * subject.unit + 3
    for _ in range(3):
        dirty = subject.alloc(size)
        subject.fill(dirty, size, "dirt")
        subject.free(dirty)
        raw = subject.alloc(size, zero=True)
        subject.expect_bytes(raw, bytes(size), "zeros from malloc(zero=True)")
        subject.fill(raw, size, "more")
        subject.free(raw)
        allocation = subject.allocate(size, zero=True)
        subject.expect_bytes(allocation.ptr, bytes(size), "zeros from allocate(zero=True)")
        subject.fill(allocation.ptr, size, "yet more")
        allocation.free()


@pool_check("zero=True is NotSupported where the provider cannot clear", unless=Capability.ZERO)
def zero_refused(subject: PoolSubject) -> None:
    pool, unit = subject.pool, subject.unit
    with subject.unchanged("a request of zeros"):
        subject.refused("malloc(zero=True)", (NotSupported,), lambda: pool.malloc(unit, zero=True))
        what = "allocate(zero=True)"
        subject.refused(what, (NotSupported,), lambda: pool.allocate(unit, zero=True))


@pool_check("trim moves and loses nothing that is live")
def trim_keeps_live(subject: PoolSubject) -> None:
    sizes = [subject.granule * (1 + i) for i in range(6)]
    pointers = [subject.alloc(size) for size in sizes]
    can_look = bool(subject.provider.capabilities & (Capability.HOST_ACCESS | Capability.COPY))
    if can_look:
        for ptr, size in zip(pointers, sizes, strict=True):
            subject.fill(ptr, size, ptr)
    for ptr in pointers[::2]:
        subject.free(ptr)
    with subject.unchanged("trim"):
        subject.pool.trim()
    for ptr, size in list(zip(pointers, sizes, strict=True))[1::2]:
        expect(subject.pool.owns(ptr), f"{ptr:#x} live after trim", "it is not")
        if can_look:
            subject.expect_pattern(ptr, size, ptr, "the bytes that were written before trim")
