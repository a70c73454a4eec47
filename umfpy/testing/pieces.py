"""Checks of native split and merge."""

from __future__ import annotations

from umfpy.errors import UmfpyError
from umfpy.provider import Capability
from umfpy.testing.registry import check
from umfpy.testing.requests import REFUSALS
from umfpy.testing.subject import Subject


@check("pieces are freed by themselves; the others keep every byte", needs=Capability.SPLIT)
def split_free(subject: Subject) -> None:
    unit = subject.unit
    for order in ((1, 0, 2), (0, 2, 1), (2, 1, 0)):
        ptr = subject.alloc(6 * unit)
        second = subject.split(ptr, 6 * unit, 2 * unit)
        third = subject.split(second, 4 * unit, 2 * unit)
        pieces = [ptr, second, third]
        for piece in pieces:
            subject.fill(piece, 2 * unit, piece - ptr)
        left = list(pieces)
        for index in order:
            subject.free(pieces[index])
            left.remove(pieces[index])
            for piece in left:
                subject.expect_pattern(
                    piece, 2 * unit, piece - ptr, "the other pieces' bytes unchanged"
                )


@check("split and merge move no byte, and the whole can be freed at once", needs=Capability.SPLIT)
def split_merge(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(4 * unit)
    subject.fill(ptr, 4 * unit, "whole")
    high = subject.split(ptr, 4 * unit, unit)
    subject.expect_pattern(ptr, 4 * unit, "whole", "the bytes unchanged by split")
    subject.merge(ptr, high)
    subject.expect_pattern(ptr, 4 * unit, "whole", "the bytes unchanged by merge")
    what = "free of a piece merged away"
    subject.refused(what, REFUSALS, subject.provider.free, high, 3 * unit)
    subject.free(ptr)


@check("after a split the whole is no piece any more", needs=Capability.SPLIT)
def split_whole_is_gone(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(2 * unit)
    high = subject.split(ptr, 2 * unit, unit)
    what = "free of both pieces at once"
    subject.refused(what, REFUSALS, subject.provider.free, ptr, 2 * unit)
    subject.free(high)
    subject.free(ptr)


@check("a split that makes no two pieces is refused", needs=Capability.SPLIT)
def split_refusals(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(4 * unit)
    arguments = [
        (ptr, 4 * unit, 0),
        (ptr, 4 * unit, 4 * unit),
        (ptr, 4 * unit, 5 * unit),
        (ptr, 3 * unit, unit),
        (ptr + unit, 3 * unit, unit),
    ]
    for each in arguments:
        what = f"split of {each[1]} bytes at {each[2]}, out of {4 * unit}"
        subject.refused(what, (UmfpyError,), subject.provider.split, *each)
    subject.free(ptr)


@check("a merge of what are not neighbours, or of another size, is refused", needs=Capability.SPLIT)
def merge_refusals(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(3 * unit)
    middle = subject.split(ptr, 3 * unit, unit)
    high = subject.split(middle, 2 * unit, unit)
    arguments = [
        (middle, ptr, 2 * unit),
        (ptr, high, 2 * unit),
        (ptr, middle, 3 * unit),
        (ptr, middle, unit),
        (ptr, ptr, 2 * unit),
    ]
    for each in arguments:
        what = f"merge of pieces {each[0] - ptr} and {each[1] - ptr} bytes in, to {each[2]}"
        subject.refused(what, (UmfpyError,), subject.provider.merge, *each)
    for piece in (high, ptr, middle):
        subject.free(piece)


@check("a piece can go down the ladder by itself", needs=Capability.SPLIT | Capability.COMMIT)
def split_decommit(subject: Subject) -> None:
    unit = subject.unit
    ptr = subject.alloc(2 * unit)
    subject.fill(ptr, 2 * unit, "whole")
    high = subject.split(ptr, 2 * unit, unit)
    low_bytes = subject.read(ptr, unit)
    subject.provider.decommit(high, unit)
    subject.expect_bytes(ptr, low_bytes, "the other piece unchanged")
    subject.provider.commit(high, unit)
    subject.expect_bytes(high, bytes(unit), "zeros in the piece")
    subject.expect_bytes(ptr, low_bytes, "the other piece unchanged")
