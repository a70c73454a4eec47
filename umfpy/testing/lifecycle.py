"""Checks of commit, decommit, dalloc and purge, and of what capabilities promise."""

from __future__ import annotations

from collections.abc import Callable

from umfpy.errors import NotSupported, UmfpyError
from umfpy.provider import Capability
from umfpy.testing.registry import check
from umfpy.testing.subject import Broken, Subject, pattern


@check("decommit drops the contents, commit brings zeros", needs=Capability.COMMIT)
def decommit_commit(subject: Subject) -> None:
    _between_neighbours(subject, _decommit_and_commit, "zeros after decommit and commit")


def _decommit_and_commit(subject: Subject, ptr: int, size: int) -> None:
    subject.provider.decommit(ptr, size)
    subject.provider.commit(ptr, size)


@check("decommitted memory can be freed", needs=Capability.COMMIT)
def free_decommitted(subject: Subject) -> None:
    ptr = subject.alloc(2 * subject.unit)
    subject.provider.decommit(ptr, 2 * subject.unit)
    subject.free(ptr)


@check("after purge_force the next access reads zero", needs=Capability.PURGE_FORCE)
def purge_force(subject: Subject) -> None:
    _between_neighbours(
        subject, lambda s, ptr, size: s.provider.purge_force(ptr, size), "zeros after purge_force"
    )


@check(
    "after purge_lazy each byte is the old one or zero, and new ones stay",
    needs=Capability.PURGE_LAZY,
)
def purge_lazy(subject: Subject) -> None:
    size = 2 * subject.unit
    low, ptr, high = sorted(subject.alloc(size) for _ in range(3))
    for each in (low, ptr, high):
        subject.fill(each, size, "old")
    subject.provider.purge_lazy(ptr, size)
    old = pattern("old", size)
    for at, byte in enumerate(subject.read(ptr, size)):
        if byte not in (0, old[at]):
            raise Broken("old bytes or zeros after purge_lazy", f"byte {at} is {byte:#04x}")
    subject.fill(ptr, size, "new")
    subject.expect_pattern(ptr, size, "new", "bytes written after purge_lazy")
    for each in (low, high):
        subject.expect_pattern(each, size, "old", "the neighbours' bytes unchanged")


@check(
    "dalloc keeps the contents, which commit brings back; the neighbours keep theirs",
    needs=Capability.DALLOC | Capability.COMMIT,
)
def dalloc_contents(subject: Subject) -> None:
    size = 2 * subject.unit
    pointers = sorted(subject.alloc(size) for _ in range(3))
    for ptr in pointers:
        subject.fill(ptr, size, ptr)
    for _ in range(2):
        subject.provider.dalloc(pointers[1], size)
        for ptr in (pointers[0], pointers[2]):
            subject.expect_pattern(ptr, size, ptr, "the neighbours' bytes unchanged by dalloc")
        subject.provider.commit(pointers[1], size)
        for ptr in pointers:
            subject.expect_pattern(ptr, size, ptr, "the bytes from before dalloc")


@check("dalloc keeps addresses and backing: commit makes it usable", needs=Capability.DALLOC)
def dalloc(subject: Subject) -> None:
    size = 2 * subject.unit
    ptr = subject.alloc(size)
    subject.provider.dalloc(ptr, size)
    if subject.has(Capability.COMMIT):
        subject.provider.commit(ptr, size)
        subject.fill(ptr, size, "again")
        subject.expect_pattern(ptr, size, "again", "bytes written after dalloc and commit")
        subject.provider.dalloc(ptr, size)
    subject.free(ptr)


@check("a rung of the ladder is refused for what is not a whole piece")
def ladder_refusals(subject: Subject) -> None:
    ptr = subject.alloc(4 * subject.unit)
    subject.write_if_possible(ptr, pattern("kept", 4 * subject.unit))
    for capability, name in _RUNGS.items():
        if not subject.has(capability):
            continue
        method = getattr(subject.provider, name)
        for base, size in ((ptr + 4 * subject.unit, subject.unit), (ptr, 5 * subject.unit)):
            subject.refused(f"{name} beyond an allocation", (UmfpyError,), method, base, size)


_RUNGS = {
    Capability.DALLOC: "dalloc",
    Capability.PURGE_LAZY: "purge_lazy",
    Capability.COMMIT: "decommit",
    Capability.PURGE_FORCE: "purge_force",
}


@check("what is not announced raises NotSupported")
def capability_refusals(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    ptr = subject.alloc(2 * unit)
    calls: list[tuple[Capability, str, Callable[[], object]]] = [
        (Capability.SPLIT, "split", lambda: provider.split(ptr, 2 * unit, unit)),
        (Capability.SPLIT, "merge", lambda: provider.merge(ptr, ptr + unit, 2 * unit)),
        (Capability.COMMIT, "commit", lambda: provider.commit(ptr, 2 * unit)),
        (Capability.COMMIT, "decommit", lambda: provider.decommit(ptr, 2 * unit)),
        (Capability.PURGE_LAZY, "purge_lazy", lambda: provider.purge_lazy(ptr, 2 * unit)),
        (Capability.PURGE_FORCE, "purge_force", lambda: provider.purge_force(ptr, 2 * unit)),
        (Capability.DALLOC, "dalloc", lambda: provider.dalloc(ptr, 2 * unit)),
        (Capability.ZERO, "zero", lambda: provider.zero(ptr, unit)),
        (Capability.COPY, "copy", lambda: provider.copy(ptr, bytes(unit), unit)),
        (Capability.STREAMS, "synchronize", provider.synchronize),
        (Capability.IPC, "ipc_export", lambda: provider.ipc_export(ptr, 2 * unit)),
        (Capability.IPC, "ipc_open", lambda: provider.ipc_open(b"")),
        (Capability.IPC, "ipc_close", lambda: provider.ipc_close(ptr, unit)),
        (Capability.RESERVE, "reserve", lambda: provider.reserve(unit)),
        (Capability.RESERVE, "chunks", lambda: provider.chunks(ptr, 2 * unit)),
        (Capability.RESERVE, "remap", lambda: provider.remap([(ptr, 2 * unit)], ptr, 2 * unit)),
    ]
    for capability, name, call in calls:
        if not subject.has(capability):
            what = f"{name}() without {capability.name} announced"
            subject.refused(what, (NotSupported,), call)


def _between_neighbours(
    subject: Subject, rung: Callable[[Subject, int, int], None], what: str
) -> None:
    """Take a rung with the middle one of three allocations, twice; the others keep their bytes."""
    size = 2 * subject.unit
    pointers = [subject.alloc(size) for _ in range(3)]
    for ptr in pointers:
        subject.fill(ptr, size, ptr)
    low, middle, high = sorted(pointers)
    for _ in range(2):
        rung(subject, middle, size)
        subject.expect_bytes(middle, bytes(size), what)
        subject.fill(middle, size, "again")
        subject.expect_pattern(middle, size, "again", "bytes written afterwards")
    for ptr in (low, high):
        subject.expect_pattern(ptr, size, ptr, "the neighbours' bytes unchanged")
