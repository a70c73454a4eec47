"""Checks of `allocate` and `malloc`, and of what they promise about sizes and addresses."""

from __future__ import annotations

import itertools

from umfpy.errors import AlignmentError, InvalidArgument, OutOfMemoryError
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import Broken, expect


@pool_check("malloc gives memory and free takes it back, again and again")
def malloc_free(subject: PoolSubject) -> None:
    for count in (1, 2, 5):
        size = count * subject.unit
        for _ in range(3):
            subject.free(subject.alloc(size))


@pool_check("allocate gives an Allocation that says its size, pool and provider")
def allocate_free(subject: PoolSubject) -> None:
    for count in (1, 3):
        size = count * subject.unit + 1
        allocation = subject.allocate(size)
        expect(allocation.size == size, f"an Allocation of {size} bytes", allocation.size)
        expect(allocation.ptr > 0, "an address above 0", allocation.ptr)
        device = (allocation.provider.memory_type, allocation.provider.device)
        wanted = (subject.provider.memory_type, subject.provider.device)
        expect(device == wanted, f"memory of {wanted}", device)
        expect(allocation.pool.owns(allocation.ptr), "allocation.pool owns it", "it does not")
        allocation.free()
        expect(allocation.freed, "freed after free()", allocation.freed)


@pool_check("sizes need not be multiples of anything")
def pool_odd_sizes(subject: PoolSubject) -> None:
    sizes = {1, subject.granule - 1, subject.granule, subject.granule + 1}
    sizes |= {subject.unit - 1, subject.unit + 1, 3 * subject.unit + 7, 65_537}
    for size in sorted(sizes - {0}):
        subject.free(subject.alloc(size))
        allocation = subject.allocate(size)
        expect(allocation.size == size, f"{size} bytes", allocation.size)
        allocation.free()


@pool_check("0 bytes are memory of their own that can be freed; a negative size is refused")
def pool_empty_sizes(subject: PoolSubject) -> None:
    pointers = [subject.alloc(0) for _ in range(3)]
    expect(len(set(pointers)) == 3, "three addresses for three allocations of 0 bytes", pointers)
    requested = subject.pool.stats().requested_bytes
    expect(requested == 0, "0 bytes requested", requested)
    for ptr in pointers:
        subject.free(ptr)
    with subject.unchanged("a request of -1 bytes"):
        subject.refused("malloc(-1)", (InvalidArgument,), subject.pool.malloc, -1)
        subject.refused("allocate(-1)", (InvalidArgument,), subject.pool.allocate, -1)


@pool_check("an alignment of 0 gives at least the granule")
def pool_default_alignment(subject: PoolSubject) -> None:
    granule = subject.granule
    for size in (1, granule, granule + 1, subject.unit, 3 * subject.unit):
        for ptr in (subject.alloc(size), subject.allocate(size).ptr):
            expect(ptr % granule == 0, f"an address aligned to the granule, {granule}", f"{ptr:#x}")


@pool_check("any power of two is given as an alignment, for 1 byte and for as many")
def pool_alignments(subject: PoolSubject) -> None:
    alignment = 1
    while alignment <= subject.options.largest_alignment:
        for size in (1, alignment):
            try:
                ptr = subject.alloc(size, alignment)
            except OutOfMemoryError:
                if alignment <= subject.unit:
                    raise
            except AlignmentError as error:
                if _provider_aligns(subject, alignment):
                    raise Broken(f"memory aligned to {alignment}", str(error)) from error
            else:
                expect(ptr % alignment == 0, f"an address aligned to {alignment}", f"{ptr:#x}")
                subject.free(ptr)
        alignment *= 2


def _provider_aligns(subject: PoolSubject, alignment: int) -> bool:
    """Return whether the provider itself can align so far."""
    if alignment <= subject.granule:
        return True
    try:
        ptr = subject.provider.alloc(subject.unit, alignment)
    except (AlignmentError, OutOfMemoryError):
        return False
    subject.provider.free(ptr, subject.unit)
    return True


@pool_check("an alignment that is not a power of two is an AlignmentError")
def pool_bad_alignments(subject: PoolSubject) -> None:
    with subject.unchanged("a request that cannot be aligned"):
        for call in (subject.pool.malloc, subject.pool.allocate):
            for alignment in (3, 12, subject.unit + 1):
                what = f"{call.__name__} with alignment {alignment}"
                subject.refused(what, (AlignmentError,), call, subject.unit, alignment)
            what = f"{call.__name__} with alignment -8"
            subject.refused(what, (InvalidArgument,), call, subject.unit, -8)


@pool_check("live allocations do not overlap")
def pool_distinct(subject: PoolSubject) -> None:
    ranges: list[tuple[int, int]] = []
    for step in range(24):
        size = subject.granule * (1 + step % 5) + step
        gone = subject.alloc(size)
        ranges.append((subject.alloc(size), size))
        ranges.append((subject.allocate(size).ptr, size))
        subject.free(gone)
    for (low, size), (high, _) in itertools.pairwise(sorted(ranges)):
        expect(low + size <= high, f"nothing between {low:#x} and {low + size:#x}", f"{high:#x}")


@pool_check("sizes near 2^63 and 2^64 are refused, never wrapped")
def pool_huge_sizes(subject: PoolSubject) -> None:
    subject.alloc(subject.unit)
    sizes = ((1 << 62), (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, (1 << 64) + subject.unit)
    errors = (OutOfMemoryError, InvalidArgument)
    for size, alignment in itertools.product(sizes, (0, 4096)):
        with subject.unchanged(f"a request of {size} bytes"):
            for call in (subject.pool.malloc, subject.pool.allocate):
                what = f"{call.__name__} of {size} bytes at alignment {alignment}"
                subject.refused(what, errors, call, size, alignment)
