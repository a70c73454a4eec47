"""Checks of what is read back: `zero`, `copy`, fresh memory, access by the host."""

from __future__ import annotations

from umfpy.provider import Capability
from umfpy.testing.registry import check
from umfpy.testing.subject import Subject, expect_equal, pattern


@check("what is written to an allocation stays until it is freed, whatever happens to others")
def keeps_contents(subject: Subject) -> None:
    size = 2 * subject.unit
    pointers = [subject.alloc(size) for _ in range(4)]
    for ptr in pointers:
        subject.fill(ptr, size, ptr)
    subject.free(pointers[1])
    other = subject.alloc(size)
    subject.fill(other, size, "other")
    for ptr in (pointers[0], *pointers[2:]):
        subject.expect_pattern(ptr, size, ptr, "the bytes that were written")


@check("fresh memory reads as zero, also where others have been", needs=Capability.FRESH_ZERO)
def fresh_zero(subject: Subject) -> None:
    size = 3 * subject.unit
    for _ in range(3):
        ptr = subject.alloc(size)
        subject.expect_bytes(ptr, bytes(size), "zeros in fresh memory")
        subject.fill(ptr, size, "dirt")
        subject.free(ptr)


@check("zero writes zeros over exactly the range given", needs=Capability.ZERO)
def zero_range(subject: Subject) -> None:
    size = 2 * subject.unit
    ptr = subject.alloc(size)
    for start, length in ((0, size), (1, 1), (subject.provider.granule, size // 2), (7, 0)):
        subject.fill(ptr, size, start)
        subject.provider.zero(ptr + start, length)
        expected = bytearray(pattern(start, size))
        expected[start : start + length] = bytes(length)
        subject.expect_bytes(ptr, bytes(expected), f"zeros at [{start}, {start + length}) alone")


@check("copy takes bytes from a host buffer, read-only ones too", needs=Capability.COPY)
def copy_from_buffer(subject: Subject) -> None:
    size = subject.unit
    ptr = subject.alloc(size)
    data = pattern("from", size)
    for source in (data, bytearray(data), memoryview(data)):
        subject.write(ptr, bytes(size))
        subject.provider.copy(ptr, source, size)
        subject.expect_bytes(ptr, data, f"the bytes of the {type(source).__name__}")


@check("copy gives bytes to a host buffer, and to no more of it than asked", needs=Capability.COPY)
def copy_to_buffer(subject: Subject) -> None:
    size = subject.unit
    ptr = subject.alloc(size)
    subject.fill(ptr, size, "to")
    buffer = bytearray(size + 16)
    subject.provider.copy(buffer, ptr, size)
    expected = pattern("to", size) + bytes(16)
    expect_equal(bytes(buffer), expected, "the allocation's bytes in the buffer, and no more")


@check("copy moves bytes between two allocations, at any offset", needs=Capability.COPY)
def copy_between(subject: Subject) -> None:
    size = 2 * subject.unit
    source, target = subject.alloc(size), subject.alloc(size)
    subject.fill(source, size, "source")
    subject.fill(target, size, "target")
    subject.provider.copy(target + 5, source + 3, size - 8)
    inside = pattern("source", size)[3 : size - 5]
    expected = pattern("target", size)[:5] + inside + pattern("target", size)[size - 3 :]
    subject.expect_bytes(target, expected, "the source's bytes between the target's own")
    subject.expect_pattern(source, size, "source", "the source unchanged")


@check(
    "host and driver see the same memory",
    needs=Capability.HOST_ACCESS | Capability.COPY,
)
def host_access(subject: Subject) -> None:
    size = subject.unit
    ptr = subject.alloc(size)
    subject.provider.copy(ptr, pattern("driver", size), size)
    subject.expect_pattern(ptr, size, "driver", "the host reads what copy wrote")
    subject.fill(ptr, size, "host")
    seen = bytearray(size)
    subject.provider.copy(seen, ptr, size)
    expect_equal(bytes(seen), pattern("host", size), "copy reads what the host wrote")
