"""Checks of limits, of running out of memory, and of giving it back."""

from __future__ import annotations

from umfpy.errors import OutOfMemoryError
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import Broken, Skipped, expect

_PIECES = 4


def _exhaust(subject: PoolSubject, size: int) -> tuple[list[int], OutOfMemoryError]:
    """Fill the pool up to what it holds now; return what it gave, and its error."""
    held = [subject.alloc(size) for _ in range(_PIECES)]
    limit = subject.pool.stats().reserved_bytes
    subject.pool.limit_bytes = limit
    while len(held) <= _PIECES + limit // size:
        try:
            held.append(subject.alloc(size))
        except OutOfMemoryError as error:
            # Its traceback would keep the pool, in a cycle with whoever looks at the error.
            return held, error.with_traceback(None)
    raise Broken(f"OutOfMemoryError beyond limit_bytes={limit}", f"{len(held)} of {size} bytes")


@pool_check("limit_bytes bounds what the pool holds, and can be lifted")
def limit(subject: PoolSubject) -> None:
    size = 2 * subject.unit
    _exhaust(subject, size)
    bound = subject.pool.limit_bytes
    held = subject.pool.stats().reserved_bytes
    expect(bound is not None and held <= bound, f"at most {bound} bytes held", held)
    subject.pool.limit_bytes = None
    expect(subject.pool.limit_bytes is None, "limit_bytes None", subject.pool.limit_bytes)
    subject.free(subject.alloc(size))


@pool_check("running out of memory is an OutOfMemoryError that says how much was asked for")
def out_of_memory(subject: PoolSubject) -> None:
    size = 2 * subject.unit
    _, error = _exhaust(subject, size)
    expect(isinstance(error, MemoryError), "an error that is a MemoryError", type(error).__name__)
    expect(error.requested == size, f"requested {size} bytes", error.requested)
    expect(bool(str(error)), "a message", repr(error))
    with subject.unchanged("a request that finds no memory"):
        subject.refused("malloc", (OutOfMemoryError,), subject.pool.malloc, size)
        subject.refused("allocate", (OutOfMemoryError,), subject.pool.allocate, size)


@pool_check("memory freed after it had run out can be used again")
def usable_again(subject: PoolSubject) -> None:
    size = 2 * subject.unit
    held, _ = _exhaust(subject, size)
    for _ in range(3):
        subject.free(held.pop())
        held.append(subject.alloc(size))
    subject.pool.check("full")


@pool_check("trim gives everything back when nothing is live, and says how many bytes")
def trim_all(subject: PoolSubject) -> None:
    for ptr in [subject.alloc(subject.unit * (1 + i)) for i in range(6)]:
        subject.free(ptr)
    held = subject.pool.stats().reserved_bytes
    given = subject.pool.trim()
    expect(given == held, f"trim() returns the {held} bytes that were held", given)
    left = subject.pool.stats().reserved_bytes
    expect(left == 0, "0 bytes held after trim()", left)
    subject.free(subject.alloc(subject.unit))


@pool_check("trim keeps as many bytes as it is told to")
def trim_keep(subject: PoolSubject) -> None:
    for ptr in [subject.alloc(subject.unit * (1 + i)) for i in range(6)]:
        subject.free(ptr)
    held = subject.pool.stats().reserved_bytes
    given = subject.pool.trim(held)
    expect(given == 0, f"nothing given back by trim({held}) of {held} bytes", given)
    given = subject.pool.trim(held // 2)
    left = subject.pool.stats().reserved_bytes
    expect(left >= held // 2, f"at least {held // 2} bytes kept", left)
    expect(left + given == held, f"{held} bytes kept or given back", left + given)


@pool_check("nothing of the provider is left when all is freed, trimmed and closed")
def pool_no_leaks(subject: PoolSubject) -> None:
    before = subject.native_before
    if before is None:
        raise Skipped("nothing says how many native allocations are live")
    for round_ in range(3):
        pointers = [subject.alloc(subject.unit * (1 + i)) for i in range(4)]
        subject.allocate(100).free()
        for ptr in pointers[round_ % 2 :: 2] + pointers[1 - round_ % 2 :: 2]:
            subject.free(ptr)
    subject.pool.trim()
    subject.alloc(subject.unit)
    subject.finish()
    subject.settle()
    count = subject.native_count()
    expect(count == before, f"{before} native allocations after close", count)
