"""Checks of `alloc` and `free`, and of what they promise about addresses."""

from __future__ import annotations

import itertools

from umfpy.errors import (
    AlignmentError,
    DriverError,
    InvalidArgument,
    OutOfMemoryError,
    UmfpyError,
)
from umfpy.testing.registry import check
from umfpy.testing.subject import Broken, Skipped, Subject, expect


def is_power_of_two(value: object) -> bool:
    """Return whether `value` is an int of one bit."""
    return isinstance(value, int) and value > 0 and value & (value - 1) == 0


@check("alloc gives memory and free takes it back, again and again")
def alloc_free(subject: Subject) -> None:
    for count in (1, 2, 5):
        size = count * subject.unit
        for _ in range(3):
            subject.free(subject.alloc(size))


@check("sizes need not be multiples of anything")
def odd_sizes(subject: Subject) -> None:
    granule = subject.provider.granule
    sizes = {1, granule - 1, granule, granule + 1, subject.unit - 1, subject.unit + 1}
    for size in sorted(sizes - {0}):
        ptr = subject.alloc(size)
        subject.free(ptr)


@check("live allocations do not overlap")
def distinct(subject: Subject) -> None:
    sizes = [subject.unit * (1 + i % 3) for i in range(12)]
    ranges = sorted((subject.alloc(size), size) for size in sizes)
    for (low, size), (high, _) in itertools.pairwise(ranges):
        expect(low + size <= high, f"nothing between {low:#x} and {low + size:#x}", f"{high:#x}")


@check("granularity is a power of two, and the recommended one is at least that")
def granularity(subject: Subject) -> None:
    provider = subject.provider
    for size in (0, 1, subject.unit, 1 << 30):
        least, best = provider.granularity(size), provider.recommended_granularity(size)
        expect(is_power_of_two(least), f"granularity({size}) is a power of two", repr(least))
        expect(is_power_of_two(best), f"recommended_granularity({size}) a power of two", repr(best))
        expect(best >= least, f"recommended_granularity({size}) >= {least}", repr(best))


@check("an alignment of 0 gives at least the granule")
def default_alignment(subject: Subject) -> None:
    granule = subject.provider.granule
    for size in (1, granule, subject.unit, 3 * subject.unit):
        ptr = subject.alloc(size)
        expect(ptr % granule == 0, f"an address aligned to the granule, {granule}", f"{ptr:#x}")


@check("any power of two up to the granule is given, and above it too or else refused clearly")
def alignments(subject: Subject) -> None:
    alignment = 1
    while alignment <= subject.options.largest_alignment:
        try:
            ptr = subject.alloc(subject.unit, alignment)
        except (AlignmentError, OutOfMemoryError) as error:
            if alignment <= subject.provider.granule:
                raise Broken(f"memory aligned to {alignment}", str(error)) from error
        else:
            expect(ptr % alignment == 0, f"an address aligned to {alignment}", f"{ptr:#x}")
            subject.free(ptr)
        alignment *= 2


@check("an alignment that is not a power of two is an AlignmentError")
def bad_alignments(subject: Subject) -> None:
    alloc = subject.provider.alloc
    for alignment in (3, 12, subject.unit + 1):
        what = f"alloc with alignment {alignment}"
        subject.refused(what, (AlignmentError,), alloc, subject.unit, alignment)
    subject.refused("alloc with alignment -8", (InvalidArgument,), alloc, subject.unit, -8)


@check("a negative size is refused; 0 is too, or it is memory of its own that can be freed")
def empty_sizes(subject: Subject) -> None:
    subject.refused("alloc of -1 bytes", (InvalidArgument,), subject.provider.alloc, -1)
    try:
        first, second = subject.alloc(0), subject.alloc(0)
    except InvalidArgument:
        return
    expect(first != second, "two addresses for two allocations of 0 bytes", f"{first:#x} twice")
    subject.free(first)
    subject.free(second)


@check("sizes near 2^63 and 2^64 are refused, never wrapped")
def huge_sizes(subject: Subject) -> None:
    requests = [(1 << 63, 0), ((1 << 63) - 1, 0), ((1 << 64) - 1, 0), (1 << 64, 0)]
    requests += [((1 << 64) - subject.unit, 2 * subject.unit), ((1 << 64) + subject.unit, 0)]
    for size, alignment in requests:
        what = f"alloc of {size} bytes at alignment {alignment}"
        errors = (OutOfMemoryError, InvalidArgument)
        subject.refused(what, errors, subject.provider.alloc, size, alignment)


@check("a refused request changes nothing")
def refusals_keep_state(subject: Subject) -> None:
    ptr = subject.alloc(subject.unit)
    before = subject.live_count()
    if before is None:
        raise Skipped("nothing says how many allocations are live")
    for size in (1 << 45, 1 << 62, (1 << 64) - 1):
        try:
            granted = subject.alloc(size)
        except UmfpyError:
            count = subject.live_count()
            expect(count == before, f"{before} live allocations after a refusal", count)
        else:
            subject.free(granted)
    subject.free(ptr)


@check("nothing is left when everything was freed")
def no_leaks(subject: Subject) -> None:
    before = subject.live_count()
    if before is None:
        raise Skipped("nothing says how many allocations are live")
    for round_ in range(3):
        pointers = [subject.alloc(subject.unit * (1 + i)) for i in range(4)]
        for ptr in pointers[round_ % 2 :: 2] + pointers[1 - round_ % 2 :: 2]:
            subject.free(ptr)
    count = subject.live_count()
    expect(count == before, f"{before} live allocations after everything was freed", count)


@check("memory that is still allocated at close stays the caller's to free")
def close_keeps_memory(subject: Subject) -> None:
    ptr = subject.alloc(subject.unit)
    subject.provider.close()
    subject.free(ptr)
    subject.provider.close()


#: How a driver or a provider may refuse to free what is not there.
REFUSALS = (InvalidArgument, DriverError)
