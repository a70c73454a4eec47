"""Checks of addresses and memory apart: `reserve`, `chunks`, `remap`, and how to `commit`."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from umfpy.errors import AlignmentError, InvalidArgument, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability, ChunkInfo
from umfpy.testing.registry import check
from umfpy.testing.subject import Subject, expect

_APART = Capability.RESERVE | Capability.SPLIT | Capability.COMMIT


@check("RESERVE comes with SPLIT and COMMIT", needs=Capability.RESERVE)
def reserve_complete(subject: Subject) -> None:
    missing = _APART & ~subject.provider.capabilities
    expect(not missing, f"all of {_APART}", f"no {missing}")


@check("reserved addresses are nobody else's, and no memory until commit", needs=_APART)
def reserve_addresses(subject: Subject) -> None:
    size = 4 * subject.unit
    other = subject.alloc(size)
    subject.fill(other, size, "other")
    for alignment in (0, 1, subject.provider.granule):
        ptr = subject.reserve(size, alignment)
        granule = subject.provider.granule
        expect(ptr % granule == 0, f"an address aligned to the granule, {granule}", f"{ptr:#x}")
        apart = ptr + size <= other or other + size <= ptr
        expect(apart, f"addresses apart from those at {other:#x}", f"{ptr:#x}")
        _expect_bare(subject, ptr, size)
        subject.provider.commit(ptr, size)
        subject.expect_bytes(ptr, bytes(size), "zeros in what was reserved and committed")
        subject.fill(ptr, size, ptr)
        subject.expect_pattern(ptr, size, ptr, "the bytes that were written")
    subject.expect_pattern(other, size, "other", "the bytes of an allocation unchanged")


@check("reserve refuses what alloc refuses, and changes nothing", needs=_APART)
def reserve_refusals(subject: Subject) -> None:
    reserve, unit = subject.provider.reserve, subject.unit
    before = subject.live_count()
    subject.refused("reserve of -1 bytes", (InvalidArgument,), reserve, -1)
    for alignment in (3, 12, unit + 1):
        what = f"reserve with alignment {alignment}"
        subject.refused(what, (AlignmentError,), reserve, unit, alignment)
    for size in ((1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 64, (1 << 64) + unit):
        errors = (OutOfMemoryError, InvalidArgument)
        subject.refused(f"reserve of {size} bytes", errors, reserve, size)
    count = subject.live_count()
    expect(count == before, f"{before} live allocations after refusals", count)


@check("a part is committed and decommitted by itself; the others stay as they are", needs=_APART)
def reserve_parts(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    low, middle, high = _in_three(subject)
    provider.commit(middle, 2 * unit)
    subject.fill(middle, 2 * unit, "middle")
    for at in (low, high):
        _expect_bare(subject, at, 2 * unit)
        provider.commit(at, 2 * unit)
        subject.fill(at, 2 * unit, at)
    subject.expect_pattern(middle, 2 * unit, "middle", "the other parts unchanged by commit")
    provider.decommit(middle, 2 * unit)
    _expect_bare(subject, middle, 2 * unit)
    for at in (low, high):
        subject.expect_pattern(at, 2 * unit, at, "the other parts unchanged by decommit")
    provider.commit(middle, 2 * unit)
    subject.expect_bytes(middle, bytes(2 * unit), "zeros in a part after decommit and commit")
    for at in (low, high):
        subject.expect_pattern(at, 2 * unit, at, "the other parts unchanged")


@check("commit clears what was decommitted unless told not to; dalloc keeps it", needs=_APART)
def commit_clear(subject: Subject) -> None:
    provider, size = subject.provider, 2 * subject.unit
    ptr = subject.reserve(size)
    for round_ in range(3):
        provider.commit(ptr, size, clear=False)
        subject.fill(ptr, size, round_)
        provider.commit(ptr, size, clear=True)
        subject.expect_pattern(ptr, size, round_, "what is committed unchanged by commit")
        if subject.has(Capability.DALLOC):
            provider.dalloc(ptr, size)
            provider.commit(ptr, size, clear=bool(round_ % 2))
            subject.expect_pattern(ptr, size, round_, "the contents after dalloc and commit")
        provider.decommit(ptr, size)
        provider.commit(ptr, size)
        subject.expect_bytes(ptr, bytes(size), "zeros after decommit and commit")
        subject.fill(ptr, size, "dirt")
        provider.decommit(ptr, size)


@check("chunk_size is a multiple of the granularity, or refused", needs=_APART)
def commit_chunk_size(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    ptr = subject.reserve(4 * unit)
    for wrong in (0, -unit, *((unit + 1, unit // 2) if unit > 1 else ())):
        commit = functools.partial(provider.commit, chunk_size=wrong)
        what = f"commit in chunks of {wrong} bytes"
        subject.refused(what, (InvalidArgument,), commit, ptr, 4 * unit)
        _expect_bare(subject, ptr, 4 * unit)
    for chunk_size in (unit, 2 * unit, 3 * unit, 8 * unit, None):
        provider.commit(ptr, 4 * unit, chunk_size=chunk_size)
        subject.expect_bytes(ptr, bytes(4 * unit), f"zeros in chunks of {chunk_size}")
        subject.fill(ptr, 4 * unit, chunk_size)
        provider.decommit(ptr, 4 * unit)


@check("chunks tile what has memory, and a piece can be cut between them", needs=_APART)
def chunks_tile(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    low, middle, high = _in_three(subject)
    provider.commit(low, 2 * unit, chunk_size=unit)
    provider.commit(high, 2 * unit)
    everything = provider.chunks(low, 6 * unit)
    _expect_tiles(everything, [(low, 2 * unit), (high, 2 * unit)])
    for ptr, size in ((low + unit, 4 * unit), (low, 5 * unit), (middle - unit, 2 * unit)):
        for chunk in provider.chunks(ptr, size):
            inside = ptr <= chunk.ptr and chunk.ptr + chunk.size <= ptr + size
            expect(inside, f"chunks inside {size} bytes at {ptr:#x}", chunk)
    for chunk in everything:
        alone = list(provider.chunks(chunk.ptr, chunk.size))
        expect(alone == [chunk], f"{chunk} alone in its own range", alone)
    first = everything[0]
    if first.size < 2 * unit:
        subject.split(low, 2 * unit, first.size)
        provider.decommit(low, first.size)
        _expect_bare(subject, low, first.size)
        rest = low + first.size
        _expect_tiles(provider.chunks(low, 2 * unit), [(rest, middle - rest)])


@check("what alloc gives has chunks as well", needs=_APART)
def chunks_of_alloc(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    ptr = subject.alloc(3 * unit)
    _expect_tiles(provider.chunks(ptr, 3 * unit), [(ptr, 3 * unit)])
    provider.decommit(ptr, 3 * unit)
    _expect_bare(subject, ptr, 3 * unit)
    ptr = subject.alloc(1)
    total = sum(chunk.size for chunk in provider.chunks(ptr, unit))
    expect(total == unit, f"{unit} bytes of memory behind 1 byte", total)


@check("remap takes the memory of pieces elsewhere; what lies between them stays", needs=_APART)
def remap(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    low, middle, high = _in_three(subject)
    for at in (low, middle, high):
        provider.commit(at, 2 * unit)
        subject.fill(at, 2 * unit, at)
    target = subject.reserve(4 * unit)
    provider.remap([(high, 2 * unit), (low, 2 * unit)], target, 4 * unit)
    _expect_tiles(provider.chunks(target, 4 * unit), [(target, 4 * unit)])
    subject.fill(target, 4 * unit, "target")
    for at in (low, high):
        _expect_bare(subject, at, 2 * unit)
    subject.expect_pattern(middle, 2 * unit, middle, "the piece between the sources unchanged")
    provider.commit(low, 2 * unit)
    subject.expect_bytes(low, bytes(2 * unit), "zeros where memory was taken away")
    provider.remap([(low, 2 * unit)], high, 2 * unit)
    subject.fill(high, 2 * unit, "high")
    subject.expect_pattern(target, 4 * unit, "target", "the bytes that were written")
    subject.expect_pattern(middle, 2 * unit, middle, "the piece between unchanged")
    subject.free(target)
    subject.expect_pattern(high, 2 * unit, "high", "the bytes that were written")


@check("a remap that cannot be is refused, and nothing has changed", needs=_APART)
def remap_refusals(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    low, middle, high = _in_three(subject)
    for at in (low, middle):
        provider.commit(at, 2 * unit)
        subject.fill(at, 2 * unit, at)
    wide = subject.reserve(4 * unit)
    both = [(low, 2 * unit), (middle, 2 * unit)]
    arguments: list[tuple[str, Sequence[tuple[int, int]], int, int]] = [
        ("more memory than room", both, high, 2 * unit),
        ("less memory than room", both[:1], wide, 4 * unit),
        ("another size than the target's", both[:1], wide, 2 * unit),
        ("another size than the source's", [(low, unit)], high, unit),
        ("the same piece twice", both[:1] * 2, wide, 4 * unit),
        ("the target itself", both[:1], low, 2 * unit),
        ("a target with memory", both[:1], middle, 2 * unit),
        ("a source without memory", [(high, 2 * unit)], high, 2 * unit),
        ("a source from inside a piece", [(low + unit, unit)], high, 2 * unit),
        ("a source that is not its", [(unit, 2 * unit)], high, 2 * unit),
        ("no source", [], high, 2 * unit),
    ]
    before = provider.chunks(low, 6 * unit)
    for what, sources, to, size in arguments:
        subject.refused(f"remap of {what}", (UmfpyError,), provider.remap, sources, to, size)
        now = provider.chunks(low, 6 * unit)
        expect(now == before, f"the same chunks after a refusal of {what}", now)
        _expect_bare(subject, wide, 4 * unit)
        _expect_bare(subject, high, 2 * unit)
        for at in (low, middle):
            subject.expect_pattern(at, 2 * unit, at, f"the bytes after a refusal of {what}")
    provider.remap(both, wide, 4 * unit)


@check("memory that was exported stays where it is", needs=_APART | Capability.IPC)
def remap_exported(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    ptr = subject.alloc(2 * unit)
    subject.fill(ptr, 2 * unit, "shared")
    target = subject.reserve(2 * unit)
    payload = provider.ipc_export(ptr, 2 * unit)
    exported = [chunk.exported for chunk in provider.chunks(ptr, 2 * unit)]
    expect(all(exported), "chunks that say they are exported", exported)
    for _ in range(2):
        what = "remap of exported memory"
        subject.refused(
            what, (InvalidArgument,), provider.remap, [(ptr, 2 * unit)], target, 2 * unit
        )
        subject.expect_pattern(ptr, 2 * unit, "shared", "the exported bytes unchanged")
        _expect_bare(subject, target, 2 * unit)
        # Who has opened it keeps it open, also when the export has ended.
        provider.ipc_release(payload)


@check(
    "every piece of a reservation is freed by itself, in any state, and none is left", needs=_APART
)
def reserve_free(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    before = subject.live_count()
    for order in ((0, 1, 2), (2, 0, 1), (1, 2, 0)):
        pieces = _in_three(subject)
        provider.commit(pieces[0], 2 * unit)
        provider.commit(pieces[1], 2 * unit)
        provider.decommit(pieces[1], 2 * unit)
        for index in order:
            subject.free(pieces[index])
    low, middle, high = _in_three(subject)
    for at in (low, middle, high):
        provider.commit(at, 2 * unit)
    subject.merge(low, middle)
    subject.merge(low, high)
    provider.decommit(low, 6 * unit)
    subject.free(low)
    count = subject.live_count()
    expect(count == before, f"{before} live allocations after everything was freed", count)


def _in_three(subject: Subject) -> tuple[int, int, int]:
    """Reserve three pieces of two units, side by side."""
    unit = subject.unit
    low = subject.reserve(6 * unit)
    middle = subject.split(low, 6 * unit, 2 * unit)
    return low, middle, subject.split(middle, 4 * unit, 2 * unit)


def _expect_bare(subject: Subject, ptr: int, size: int) -> None:
    """Raise Broken unless a whole piece has no memory, and says so to those who want to use it."""
    found = subject.provider.chunks(ptr, size)
    expect(not found, f"no chunks in {size} bytes at {ptr:#x} without memory", found)
    if subject.has(Capability.ZERO):
        what = "zero of addresses without memory"
        subject.refused(what, (UmfpyError,), subject.provider.zero, ptr, size)
    if subject.has(Capability.COPY):
        what = "copy to addresses without memory"
        subject.refused(what, (UmfpyError,), subject.provider.copy, ptr, bytes(size), size)


def _expect_tiles(chunks: Sequence[ChunkInfo], ranges: Sequence[tuple[int, int]]) -> None:
    """Raise Broken unless chunks, in order, fill these ranges exactly."""
    joined: list[tuple[int, int]] = []
    for chunk in chunks:
        last = joined[-1] if joined else (0, 0)
        if sum(last) == chunk.ptr:
            joined[-1] = last[0], last[1] + chunk.size
        else:
            joined.append((chunk.ptr, chunk.size))
    wanted = [(hex(ptr), size) for ptr, size in ranges]
    seen = [(hex(ptr), size) for ptr, size in joined]
    expect(seen == wanted, f"chunks that fill {wanted}", seen)
