"""Checks that `free` takes back only what `alloc` gave, and that a refusal costs nothing."""

from __future__ import annotations

from umfpy.testing.registry import check
from umfpy.testing.requests import REFUSALS
from umfpy.testing.subject import Subject


@check("freeing twice is refused")
def double_free(subject: Subject) -> None:
    ptr = subject.alloc(subject.unit)
    subject.free(ptr)
    what = "the second free of an address"
    subject.refused(what, REFUSALS, subject.provider.free, ptr, subject.unit)


@check("freeing an address that alloc never gave is refused")
def foreign_pointer(subject: Subject) -> None:
    buffer = bytearray(64)
    for ptr in (id(buffer) & -64, subject.unit, 1):
        what = f"free of the foreign address {ptr:#x}"
        subject.refused(what, REFUSALS, subject.provider.free, ptr, subject.unit)


@check("freeing from inside an allocation is refused, and the allocation stays")
def interior_pointer(subject: Subject) -> None:
    size = 4 * subject.unit
    ptr = subject.alloc(size)
    for inside in (ptr + subject.unit, ptr + subject.provider.granule):
        what = "free inside an allocation"
        subject.refused(what, REFUSALS, subject.provider.free, inside, subject.unit)
    subject.free(ptr)


@check("freeing with another size is refused, and the allocation stays")
def wrong_size(subject: Subject) -> None:
    size = 4 * subject.unit
    ptr = subject.alloc(size)
    for other in (subject.unit, size - 1, size + subject.unit):
        what = f"free of {other} bytes where {size} were allocated"
        subject.refused(what, REFUSALS, subject.provider.free, ptr, other)
    subject.free(ptr)
