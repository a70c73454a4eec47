"""Checks of memory that goes down a rung."""

from __future__ import annotations

from umfpy.errors import InvalidArgument
from umfpy.pools.rungs import RUNGS, Trimmed
from umfpy.provider import Capability
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import Skipped, expect

#: Allocations of these many units, every other one of which is freed.
_UNITS = (1, 6, 2, 5, 3, 4)


@pool_check("trim takes the rung it is told or a more aggressive one, and says how many bytes went")
def rungs_told(subject: PoolSubject) -> None:
    _leave_holes(subject)
    for rung in RUNGS:
        before = subject.pool.stats()
        with subject.unchanged(f"trim(rung={rung!r})"):
            went = subject.pool.trim(rung=rung)
        now = subject.pool.stats()
        expect(isinstance(went, Trimmed), "a Trimmed from trim()", type(went).__name__)
        possible = (None, *RUNGS[RUNGS.index(rung) :])
        expect(went.rung in possible, f"trim(rung={rung!r}).rung one of {possible}", went.rung)
        hidden = now.hidden_bytes - before.hidden_bytes
        gone = before.reserved_bytes - now.reserved_bytes
        told = f"what trim(rung={rung!r}) says, {went!r}, in the counters"
        seen = f"{gone} bytes gone, {hidden} hidden"
        if went.rung is None:
            expect((went, gone, hidden) == (0, 0, 0), told, seen)
        elif went.rung == "dalloc":
            expect((gone, hidden) == (0, went), told, seen)
        elif went.rung in ("purge_lazy", "purge_force"):
            expect(gone == 0 and now.hidden_bytes == 0, told, seen)
        else:
            expect(gone == went, told, seen)
        free = now.reserved_bytes - now.used_bytes - now.hidden_bytes
        expect(now.free_bytes == free, f"{free} bytes free for use", now.free_bytes)


@pool_check("no rung moves or changes anything that is live")
def rungs_keep_live(subject: PoolSubject) -> None:
    live = _leave_holes(subject)
    can_look = bool(subject.provider.capabilities & (Capability.HOST_ACCESS | Capability.COPY))
    for rung in RUNGS:
        for ptr, size in live.items() if can_look else ():
            subject.fill(ptr, size, (rung, ptr))
        subject.pool.trim(rung=rung)
        for ptr, size in live.items():
            expect(subject.pool.owns(ptr), f"{ptr:#x} live after trim(rung={rung!r})", "it is not")
            if can_look:
                what = f"the bytes that were written before trim(rung={rung!r})"
                subject.expect_pattern(ptr, size, (rung, ptr), what)


@pool_check("after any rung the pool serves what it served before, as memory of its own")
def rungs_come_back(subject: PoolSubject) -> None:
    can_look = bool(subject.provider.capabilities & (Capability.HOST_ACCESS | Capability.COPY))
    for rung in RUNGS:
        pointers = [subject.alloc(units * subject.unit) for units in _UNITS]
        for ptr in pointers:
            subject.free(ptr)
        subject.pool.trim(rung=rung)
        taken = {subject.alloc(units * subject.unit): units * subject.unit for units in _UNITS}
        for ptr, size in taken.items() if can_look else ():
            subject.fill(ptr, size, (rung, ptr))
        for ptr, size in taken.items():
            if can_look:
                subject.expect_pattern(ptr, size, (rung, ptr), f"the bytes written after {rung}")
            subject.free(ptr)
        if subject.has(Capability.ZERO):
            size = 4 * subject.unit + 5
            ptr = subject.alloc(size, zero=True)
            if can_look:
                subject.expect_bytes(ptr, bytes(size), f"zeros after {rung}")
            subject.free(ptr)
        subject.pool.check("full")


@pool_check("what is no rung is InvalidArgument")
def rungs_refused(subject: PoolSubject) -> None:
    _leave_holes(subject)
    for wrong in ("purge", "", None, 3):
        with subject.unchanged(f"trim(rung={wrong!r})"):
            what, errors = f"trim(rung={wrong!r})", (InvalidArgument,)
            subject.refused(what, errors, lambda rung=wrong: subject.pool.trim(rung=rung))


@pool_check("nothing of the provider is left after any rung, when all is freed and closed")
def rungs_no_leaks(subject: PoolSubject) -> None:
    before = subject.native_before
    if before is None:
        raise Skipped("nothing says how many native allocations are live")
    for rung in RUNGS[:-1]:
        for ptr in _leave_holes(subject):
            subject.pool.trim(rung=rung)
            subject.free(ptr)
    subject.pool.trim(rung="decommit")
    subject.finish()
    subject.settle()
    count = subject.native_count()
    expect(count == before, f"{before} native allocations after close", count)


def _leave_holes(subject: PoolSubject) -> dict[int, int]:
    """Let the pool have free memory between live; return what is live, with its bytes."""
    made = [(subject.alloc(units * subject.unit), units * subject.unit) for units in _UNITS]
    for ptr, _ in made[1::2]:
        subject.free(ptr)
    return dict(made[::2])
