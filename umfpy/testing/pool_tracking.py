"""Checks of `find` and of the statistics."""

from __future__ import annotations

from umfpy.find import find
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import expect


@pool_check("find leads from each byte of an allocation to it, and from none beyond")
def find_addresses(subject: PoolSubject) -> None:
    for size in (1, max(subject.granule - 1, 1), subject.granule + 1, 3 * subject.unit + 5):
        raw, owned = subject.alloc(size), subject.allocate(size)
        for base in (raw, owned.ptr):
            _expect_found(subject, base, size)


def _expect_found(subject: PoolSubject, base: int, size: int) -> None:
    for offset in sorted({0, min(1, size - 1), size // 2, size - 1}):
        info = find(base + offset)
        seen = None if info is None else (info.base, info.size, info.offset)
        wanted = (base, size, offset)
        expect(seen == wanted, f"find({base:#x} + {offset}) tells {wanted}", seen)
        expect(subject.pool.owns(base + offset), f"owns({base:#x} + {offset})", False)
    for outside in (base - 1, base + size):
        info = find(outside)
        other = info is None or info.base != base
        expect(other, f"{outside:#x} outside the {size} bytes at {base:#x}", "found in them")


@pool_check("what was freed is not found any more")
def find_freed(subject: PoolSubject) -> None:
    raw, owned = subject.alloc(subject.unit), subject.allocate(subject.unit)
    for ptr in (raw, owned.ptr):
        expect(subject.pool.owns(ptr), f"the pool owns {ptr:#x} while it lives", False)
    subject.free(raw)
    owned.free()
    for ptr in (raw, owned.ptr):
        expect(not subject.pool.owns(ptr), f"owns({ptr:#x}) false once it is freed", True)
        info = find(ptr)
        gone = info is None or info.pool is None or not subject.pool.owns(info.base)
        expect(gone, f"find({ptr:#x}) tells nothing of the pool once it is freed", info)


@pool_check("the id of an allocation is that of find, and never comes again")
def unique_ids(subject: PoolSubject) -> None:
    seen: set[int] = set()
    for _ in range(20):
        allocation = subject.allocate(subject.unit)
        info = find(allocation.ptr)
        told = None if info is None else info.id
        expect(told == allocation.id, f"find tells the id {allocation.id}", told)
        expect(allocation.id not in seen, "an id that was not there before", allocation.id)
        seen.add(allocation.id)
        allocation.free()


@pool_check("the counts follow every call, exactly")
def counts(subject: PoolSubject) -> None:
    live = requested = ever = 0
    held: list[int] = []
    sizes = (1, subject.granule, subject.granule + 1, 0, 5 * subject.unit)
    for size in sizes:
        held.append(subject.alloc(size))
        live, requested, ever = live + 1, requested + size, ever + 1
        _expect_counts(subject, live, requested, ever, ever - live)
    owned = subject.allocate(777)
    _expect_counts(subject, live + 1, requested + 777, ever + 1, ever - live)
    owned.free()
    ever += 1
    for ptr, size in zip(held, sizes, strict=True):
        _expect_counts(subject, live, requested, ever, ever - live)
        subject.free(ptr)
        live, requested = live - 1, requested - size
    _expect_counts(subject, 0, 0, ever, ever)


def _expect_counts(
    subject: PoolSubject, live: int, requested: int, allocations: int, frees: int
) -> None:
    now = subject.pool.stats()
    seen = (now.live_allocations, now.requested_bytes, now.allocations, now.frees)
    wanted = (live, requested, allocations, frees)
    expect(seen == wanted, f"live, requested bytes, allocations, frees {wanted}", seen)


@pool_check("requested bytes are at most the used, these the reserved, and peaks are the highest")
def sums(subject: PoolSubject) -> None:
    pointers = [subject.alloc(subject.unit * (1 + i) + 1) for i in range(5)]
    top = subject.pool.stats()
    for ptr in pointers:
        subject.free(ptr)
    now = subject.pool.stats()
    for each in (top, now):
        rising = each.requested_bytes <= each.used_bytes <= each.reserved_bytes
        expect(rising, "requested <= used <= reserved bytes", each)
    expect(now.used_bytes == 0, "0 bytes used when all is freed", now.used_bytes)
    peak = (now.peak_requested_bytes, now.peak_used_bytes)
    wanted = (top.requested_bytes, top.used_bytes)
    expect(peak == wanted, f"peaks of {wanted} requested and used bytes", peak)
    subject.pool.reset_peaks()
    again = subject.pool.stats().peak_used_bytes
    expect(again == 0, "a peak of 0 after reset_peaks with nothing live", again)
