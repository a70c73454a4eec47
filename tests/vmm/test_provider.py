"""What the providers of virtual memory do, whatever the driver."""

from __future__ import annotations

import pytest

from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.provider import Capability, ChunkInfo

MIB = 1 << 20
SMALL_PAGE, UNIT = 64 << 10, 2 * MIB

#: What the driver is asked to do, so often, where memory moves and where access to it comes back.
CALLS_OF_A_REMAP = {
    "cuda": {"cuMemCreate": 0, "cuMemRelease": 0, "cuMemSetAccess": 1},
    "level_zero": {
        "zePhysicalMemCreate": 0,
        "zePhysicalMemDestroy": 0,
        "zeVirtualMemMap": 16,
        "zeVirtualMemUnmap": 16,
    },
}
CALLS_OF_A_COMMIT = {
    "cuda": {"cuMemSetAccess": 1},
    "level_zero": {"zeVirtualMemMap": 1, "zeVirtualMemSetAccessAttribute": 2},
}


def called(emu, names):
    return {name: emu.calls[name] for name in names}


def physical(emu):
    """Bytes of physical memory that are alive."""
    return sum(item.size for item in emu.live().get("handles", []))


def mapped(provider):
    return provider.reserved_bytes - provider.kept_bytes


def test_units(provider):
    assert provider.granularity() == provider.granularity(1 << 30) == UNIT
    assert provider.recommended_granularity() == UNIT
    assert provider.recommended_granularity(1 << 30) == 256 * MIB
    assert Capability.FRESH_ZERO not in provider.capabilities


@pytest.mark.parametrize("alignment", [0, 4096, 4 * MIB, 1 << 30])
def test_alignment(provider, alignment):
    ptrs = [provider.alloc(3 * UNIT, alignment) for _ in range(3)]
    for ptr in ptrs:
        assert ptr % max(alignment, UNIT) == 0
        provider.free(ptr, 3 * UNIT)


def test_a_cut_lies_between_chunks_and_the_refusal_says_where_they_are(provider):
    size = 64 * MIB
    ptr = provider.alloc(size)
    for first in (UNIT, 15 * MIB, 18 * MIB):
        with pytest.raises(InvalidArgument, match="inside a chunk of 16777216 bytes") as caught:
            provider.split(ptr, size, first)
        assert f"{ptr + first // (16 * MIB) * (16 * MIB):#x}" in str(caught.value)
    provider.split(ptr, size, 32 * MIB)
    provider.free(ptr, 32 * MIB)
    provider.free(ptr + 32 * MIB, 32 * MIB)


def test_splits_between_chunks_only(provider):
    ptr = provider.alloc(32 * UNIT)
    for first in (SMALL_PAGE, UNIT + 1, 0, 32 * UNIT):
        with pytest.raises(InvalidArgument):
            provider.split(ptr, 32 * UNIT, first)
    with pytest.raises(InvalidArgument, match="inside a chunk of 16777216 bytes"):
        provider.split(ptr, 32 * UNIT, UNIT)
    with pytest.raises(InvalidArgument):
        provider.split(1 << 20, 2 * UNIT, UNIT)
    provider.free(ptr, 32 * UNIT)


def test_pieces_give_back_their_memory(provider, emu):
    ptr = provider.alloc(8 * UNIT)
    provider.split(ptr, 8 * UNIT, 2 * UNIT)
    provider.split(ptr + 2 * UNIT, 6 * UNIT, 4 * UNIT)
    provider.free(ptr + 2 * UNIT, 4 * UNIT)
    assert mapped(provider) == 4 * UNIT
    provider.free(ptr, 2 * UNIT)
    provider.free(ptr + 6 * UNIT, 2 * UNIT)
    assert mapped(provider) == 0
    assert physical(emu) == provider.kept_bytes > 0
    provider.trim()
    assert physical(emu) == 0


def test_a_ragged_end_belongs_to_the_last_piece(provider):
    size = 3 * UNIT + 100
    ptr = provider.alloc(size)
    provider.split(ptr, size, 3 * UNIT)
    provider.free(ptr, 3 * UNIT)
    assert mapped(provider) == UNIT
    provider.free(ptr + 3 * UNIT, 100)


def test_chunks_are_those_that_lie_wholly_inside(provider):
    ptr = provider.alloc(64 * MIB)
    whole = provider.chunks(ptr, 64 * MIB)
    assert whole == [ChunkInfo(ptr + at * 16 * MIB, 16 * MIB) for at in range(4)]
    assert provider.chunks(ptr + UNIT, 62 * MIB) == whole[1:]
    assert provider.chunks(ptr, 62 * MIB) == whole[:3]
    assert provider.chunks(ptr + UNIT, 30 * MIB) == whole[1:2]
    assert provider.chunks(ptr + UNIT, 12 * MIB) == []
    provider.split(ptr, 64 * MIB, 16 * MIB)
    provider.split(ptr + 16 * MIB, 48 * MIB, 16 * MIB)
    provider.decommit(ptr + 16 * MIB, 16 * MIB)
    assert provider.chunks(ptr, 64 * MIB) == [whole[0], *whole[2:]]
    provider.free(ptr, 16 * MIB)
    provider.free(ptr + 16 * MIB, 16 * MIB)
    assert provider.chunks(ptr, 64 * MIB) == whole[2:]
    provider.free(ptr + 32 * MIB, 32 * MIB)


def test_commit_takes_the_chunks_that_it_is_told_to(provider):
    ptr = provider.reserve(64 * MIB)
    for wanted in (0, -UNIT, MIB, 3 * MIB, UNIT + 1):
        with pytest.raises(InvalidArgument, match=rf"chunk_size is {wanted}; .* {UNIT} bytes"):
            provider.commit(ptr, 64 * MIB, chunk_size=wanted)
    assert provider.chunks(ptr, 64 * MIB) == []
    provider.split(ptr, 64 * MIB, 34 * MIB)
    provider.commit(ptr, 34 * MIB, chunk_size=4 * MIB)
    assert [chunk.size for chunk in provider.chunks(ptr, 64 * MIB)] == [4 * MIB] * 8 + [UNIT]
    rest = ptr + 34 * MIB
    provider.commit(rest, 30 * MIB, chunk_size=6 * MIB)
    assert [chunk.size for chunk in provider.chunks(rest, 30 * MIB)] == [6 * MIB] * 5
    provider.merge(ptr, rest, 64 * MIB)
    provider.free(ptr, 64 * MIB)
    ptr = provider.reserve(10 * MIB)
    provider.trim()
    provider.commit(ptr, 10 * MIB, chunk_size=1 << 40)
    assert [chunk.size for chunk in provider.chunks(ptr, 10 * MIB)] == [8 * MIB, UNIT]
    provider.free(ptr, 10 * MIB)


def test_chunks_of_the_wanted_size_and_what_is_left(provider):
    ptr = provider.reserve(64 * MIB)
    provider.split(ptr, 64 * MIB, 10 * MIB)
    provider.commit(ptr, 10 * MIB, chunk_size=4 * MIB)
    found = provider.chunks(ptr, 64 * MIB)
    assert found == [
        ChunkInfo(ptr, 4 * MIB),
        ChunkInfo(ptr + 4 * MIB, 4 * MIB),
        ChunkInfo(ptr + 8 * MIB, UNIT),
    ]
    assert provider.chunks(ptr + UNIT, 62 * MIB) == found[1:]
    provider.free(ptr + 10 * MIB, 54 * MIB)
    provider.free(ptr, 10 * MIB)


def test_a_piece_keeps_its_neighbours_and_its_hole_gets_other_chunks(provider, read):
    ptr = provider.alloc(12 * MIB)
    provider.copy(ptr, b"x" * 12 * MIB, 12 * MIB)
    provider.split(ptr, 12 * MIB, 4 * MIB)
    provider.split(ptr + 4 * MIB, 8 * MIB, 4 * MIB)
    before = mapped(provider)
    provider.decommit(ptr + 4 * MIB, 4 * MIB)
    assert mapped(provider) == before - 4 * MIB
    assert provider.chunks(ptr + 4 * MIB, 4 * MIB) == []
    for call in (provider.zero, lambda at, size: read(provider, at, size)):
        with pytest.raises(InvalidArgument, match="commit them first"):
            call(ptr + 4 * MIB, 16)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.purge_force(ptr + 4 * MIB, 4 * MIB)
    # What is decommitted is cut anywhere, and backed in parts.
    provider.split(ptr + 4 * MIB, 4 * MIB, UNIT)
    provider.commit(ptr + 4 * MIB, UNIT)
    provider.commit(ptr + 6 * MIB, UNIT)
    provider.merge(ptr + 4 * MIB, ptr + 6 * MIB, 4 * MIB)
    provider.merge(ptr, ptr + 4 * MIB, 8 * MIB)
    provider.merge(ptr, ptr + 8 * MIB, 12 * MIB)
    expected = b"x" * 4 * MIB + bytes(4 * MIB) + b"x" * 4 * MIB
    assert read(provider, ptr, 12 * MIB) == expected
    provider.free(ptr, 12 * MIB)


def test_commit_brings_zeros_also_out_of_memory_that_was_kept(provider, read):
    ptr = provider.alloc(4 * MIB)
    provider.copy(ptr, b"x" * 4 * MIB, 4 * MIB)
    provider.decommit(ptr, 4 * MIB)
    assert provider.kept_bytes == 4 * MIB
    provider.commit(ptr, 4 * MIB)
    assert provider.kept_bytes == 0
    assert read(provider, ptr, 4 * MIB) == bytes(4 * MIB)
    provider.copy(ptr, b"kept", 4)
    provider.commit(ptr, 4 * MIB)
    assert read(provider, ptr, 4) == b"kept"
    provider.free(ptr, 4 * MIB)


def test_dalloc_keeps_memory_and_contents(provider, emu, read):
    ptr = provider.alloc(4 * UNIT)
    provider.copy(ptr, b"data", 4)
    provider.dalloc(ptr, 4 * UNIT)
    assert physical(emu) == mapped(provider) == 4 * UNIT
    with pytest.raises(InvalidArgument, match="commit them first"):
        provider.copy(ptr, b"none", 4)
    provider.commit(ptr, 4 * UNIT)
    assert read(provider, ptr, 4) == b"data"
    provider.dalloc(ptr, 4 * UNIT)
    provider.decommit(ptr, 4 * UNIT)
    provider.commit(ptr, 4 * UNIT)
    assert read(provider, ptr, 4) == bytes(4)
    provider.free(ptr, 4 * UNIT)


def test_a_mixed_piece_gets_back_what_each_part_had(driver, provider, emu, read):
    ptr = provider.alloc(3 * UNIT)
    provider.copy(ptr, b"x" * 3 * UNIT, 3 * UNIT)
    provider.split(ptr, 3 * UNIT, UNIT)
    provider.split(ptr + UNIT, 2 * UNIT, UNIT)
    provider.dalloc(ptr, UNIT)
    provider.decommit(ptr + UNIT, UNIT)
    provider.dalloc(ptr + 2 * UNIT, UNIT)
    provider.merge(ptr, ptr + UNIT, 2 * UNIT)
    provider.merge(ptr, ptr + 2 * UNIT, 3 * UNIT)
    emu.reset_calls()
    provider.commit(ptr, 3 * UNIT)
    expected = CALLS_OF_A_COMMIT[driver]
    assert called(emu, expected) == expected
    assert read(provider, ptr, 3 * UNIT) == b"x" * UNIT + bytes(UNIT) + b"x" * UNIT
    provider.free(ptr, 3 * UNIT)


def test_reserved_addresses_are_backed_part_by_part(provider, emu):
    ptr = provider.reserve(64 * MIB, 32 * MIB)
    assert ptr % (32 * MIB) == 0
    assert provider.reserved_bytes == physical(emu) == 0
    assert provider.properties(ptr)["committed"] is False
    provider.split(ptr, 64 * MIB, 10 * MIB)
    provider.commit(ptr, 10 * MIB)
    assert mapped(provider) == 10 * MIB
    provider.free(ptr + 10 * MIB, 54 * MIB)
    provider.free(ptr, 10 * MIB)


def test_growth_in_place_never_holds_two_copies(provider, read):
    size = 8 * MIB
    ptr = provider.alloc(size)
    provider.copy(ptr, b"first", 5)
    while size < 2 << 30:
        assert provider.extend(ptr, size, size // 2)
        size += size // 2
        assert size <= mapped(provider) < size + UNIT
    assert read(provider, ptr, 5) == b"first"
    provider.zero(ptr + size - 16, 16)
    provider.free(ptr, size)


def test_extend(provider):
    ptr = provider.alloc(100)
    assert provider.extend(ptr, 100, UNIT - 100)
    assert provider.chunks(ptr, UNIT) == provider.chunks(ptr, 1)
    assert provider.extend(ptr, UNIT, 1)
    assert len(provider.chunks(ptr, UNIT + 1)) == 2
    provider.split(ptr, UNIT + 1, UNIT)
    assert not provider.extend(ptr, UNIT, UNIT)
    provider.dalloc(ptr, UNIT)
    with pytest.raises(InvalidArgument, match="commit it first"):
        provider.extend(ptr, UNIT, UNIT)
    for more in (0, -1):
        with pytest.raises(InvalidArgument):
            provider.extend(ptr + UNIT, 1, more)
    with pytest.raises(InvalidArgument):
        provider.extend(ptr + UNIT, 2, UNIT)
    with pytest.raises(OutOfMemoryError) as caught:
        provider.extend(ptr + UNIT, 1, 5 << 30)
    assert caught.value.requested == 5 << 30
    provider.free(ptr, UNIT)
    provider.free(ptr + UNIT, 1)


def test_free_memory_goes_where_it_is_needed_and_no_live_byte_moves(driver, provider, emu, read):
    """Every second of many is free; together they become one large piece."""
    ptrs = [provider.alloc(4 * MIB) for _ in range(16)]
    for ptr in ptrs:
        provider.copy(ptr, ptr.to_bytes(8, "little"), 8)
    everything = mapped(provider)
    target = provider.reserve(32 * MIB)
    emu.reset_calls()
    provider.remap([(ptr, 4 * MIB) for ptr in ptrs[::2]], target, 32 * MIB)
    assert mapped(provider) == everything
    expected = CALLS_OF_A_REMAP[driver]
    assert called(emu, expected) == expected
    assert provider.properties(ptrs[0])["committed"] is False
    provider.copy(target, b"x" * 32 * MIB, 32 * MIB)
    for ptr in ptrs[1::2]:
        assert read(provider, ptr, 8) == ptr.to_bytes(8, "little")
    provider.free(target, 32 * MIB)
    provider.commit(ptrs[0], 4 * MIB)
    for ptr in ptrs:
        provider.free(ptr, 4 * MIB)


def test_remap_takes_what_nobody_may_access_too(provider, read):
    ptr = provider.alloc(4 * MIB)
    provider.dalloc(ptr, 4 * MIB)
    target = provider.reserve(4 * MIB)
    provider.remap([(ptr, 4 * MIB)], target, 4 * MIB)
    provider.zero(target, 4 * MIB)
    provider.free(ptr, 4 * MIB)
    provider.free(target, 4 * MIB)
