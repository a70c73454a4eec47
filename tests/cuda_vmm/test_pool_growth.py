"""What a pool over virtual memory takes of the device: what it needs, and not a copy of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fakes.stamped import Stamped, elsewhere
from umfpy import CudaVmmProvider, HostProvider, InvalidArgument, Pool, VirtualGrowth
from umfpy.core.extents import SAFE
from umfpy.provider import Provider
from umfpy.providers.emulated import EmulatedCuda, emulate

MIB, GIB = 1 << 20, 1 << 30
UNIT = 2 * MIB

SOURCES: dict[str, Callable[[], Provider]] = {
    "cuda": CudaVmmProvider,
    "cuda, 4 MiB chunks": lambda: CudaVmmProvider(chunk_size="4MiB"),
    "host": HostProvider,
}


@pytest.fixture(params=SOURCES)
def source(request: pytest.FixtureRequest, emu: EmulatedCuda) -> Iterator[Provider]:
    made = SOURCES[request.param]()
    yield made
    assert made.live_count() == 0
    made.close()


@pytest.fixture
def stamped(source: Provider) -> Iterator[Stamped]:
    """Allocations of a pool that is empty in the end."""
    pool = Pool(source, virtual=True)
    made = Stamped(pool)
    yield made
    made.check()
    made.clear()
    end(pool)


def end(pool: Pool) -> None:
    """Nothing stays behind."""
    pool.close()
    pool.check("full")
    now = pool.stats()
    assert (now.extents, now.reserved_bytes, now.unbacked_bytes, now.hidden_bytes) == (0, 0, 0, 0)


def reserved(stamped: Stamped) -> int:
    """What the pool holds, in MiB; everything is as it should be."""
    stamped.check()
    return stamped.pool.stats().reserved_bytes // MIB


# Memory goes where it is needed.


def test_free_blocks_become_larger_ones(stamped: Stamped) -> None:
    first = [stamped.allocate(16 * MIB) for _ in range(8)]
    assert reserved(stamped) == 128
    stamped.free(*first)

    for _ in range(4):
        stamped.allocate(32 * MIB)

    assert reserved(stamped) == 128
    assert stamped.pool.stats().peak_reserved_bytes == 128 * MIB


@pytest.mark.parametrize("every", [2, 3])
def test_holes_become_one_piece(stamped: Stamped, every: int) -> None:
    """Nothing that is live moves, or loses a byte."""
    small = [stamped.allocate(16 * MIB) for _ in range(8)]
    gone = small[::every]
    places = {one: one.ptr for one in small if one not in gone}
    stamped.free(*gone)

    large = stamped.allocate(len(gone) * 16 * MIB)

    assert reserved(stamped) == 128
    assert all(one.ptr == at for one, at in places.items())
    assert large.size == len(gone) * 16 * MIB


def test_a_hole_at_the_end_grows_by_what_is_missing(stamped: Stamped) -> None:
    stamped.allocate(16 * MIB)
    last = stamped.allocate(16 * MIB)
    at = last.ptr
    stamped.free(last)

    large = stamped.allocate(40 * MIB)

    assert large.ptr == at
    assert reserved(stamped) == 56


def test_what_holes_have_is_put_to_use_before_any_of_the_device(stamped: Stamped) -> None:
    small = [stamped.allocate(16 * MIB) for _ in range(6)]
    stamped.free(*small[:5:2])

    stamped.allocate(56 * MIB)

    assert reserved(stamped) == 6 * 16 + 8


def test_one_chunk_that_is_used_a_little_stays(stamped: Stamped) -> None:
    """The rest of the memory around it goes."""
    big = stamped.allocate(16 * MIB)
    tiny = stamped.allocate(100)
    stamped.allocate(16 * MIB)
    stamped.free(big)
    unit = stamped.source.granularity()

    stamped.allocate(16 * MIB - unit)

    assert reserved(stamped) <= 32 + max(unit, UNIT) // MIB
    assert tiny in stamped.live


@pytest.mark.parametrize("alignment", [1, 512, 4 * MIB, 64 * MIB, GIB])
def test_any_alignment(stamped: Stamped, alignment: int) -> None:
    """Addresses cost nothing: memory is put where they are right."""
    stamped.allocate(100)
    blocks = [stamped.allocate(6 * MIB, alignment) for _ in range(3)]

    assert all(block.ptr % alignment == 0 for block in blocks)
    assert reserved(stamped) <= 3 * 8 + 4 + 6
    stamped.free(*blocks)
    stamped.allocate(18 * MIB, alignment)
    assert reserved(stamped) <= 3 * 8 + 4 + 6


def test_sizes_of_every_kind(stamped: Stamped) -> None:
    for size in (0, 1, 511, 513, UNIT - 1, UNIT, UNIT + 1, 3 * MIB + 7, 40 * MIB - 1):
        stamped.allocate(size)

    live = stamped.pool.stats().used_bytes // MIB
    assert reserved(stamped) <= live + 8
    assert len({one.ptr for one in stamped.live}) == 9


# Growing in place.


def test_an_array_that_grows_is_never_there_twice() -> None:
    """Over 10 GiB by half again each time: what is held is what it has, and a step."""
    emu = emulate("cuda", memory="16GiB")
    source = CudaVmmProvider()
    stamped = Stamped(Pool(source))
    array = stamped.allocate(MIB)
    at = array.ptr
    while array.size < 10 * GIB:
        assert stamped.resize(array, array.size * 3 // 2)

        held = stamped.pool.stats().reserved_bytes
        assert array.size <= held <= array.size * 41 // 40 + 24 * MIB
        assert source.reserved_bytes == held
    assert array.ptr == at
    assert stamped.pool.stats().peak_reserved_bytes <= array.size * 41 // 40 + 24 * MIB
    stamped.check()
    stamped.clear()
    end(stamped.pool)
    source.close()
    assert emu.leaks() == {}


def test_an_array_grows_out_of_what_others_have_left(stamped: Stamped) -> None:
    array = stamped.allocate(UNIT)
    others = [stamped.allocate(16 * MIB, elsewhere(array)) for _ in range(4)]
    before = reserved(stamped)
    stamped.free(*others)

    assert stamped.resize(array, 50 * MIB)

    assert reserved(stamped) == before
    assert stamped.resize(array, UNIT)
    assert stamped.resize(array, 66 * MIB)
    assert reserved(stamped) == before


def test_an_array_that_somebody_lies_behind_stays(stamped: Stamped) -> None:
    array = stamped.allocate(UNIT)
    behind = stamped.allocate(UNIT)
    assert behind.ptr == array.ptr + UNIT
    before = stamped.pool.stats()

    assert not stamped.resize(array, UNIT + 1)
    assert stamped.pool.stats() == before
    stamped.free(behind)
    assert stamped.resize(array, 2 * UNIT)
    assert stamped.pool.stats().reserved_bytes == before.reserved_bytes


def test_two_arrays_grow_beside_each_other(stamped: Stamped) -> None:
    """Each into its own addresses, if there is room between them."""
    one = stamped.allocate(UNIT)
    other = stamped.allocate(UNIT, elsewhere(one))
    for size in range(2, 40, 3):
        assert stamped.resize(one, size * UNIT)
        assert stamped.resize(other, size * UNIT)

    assert reserved(stamped) == 2 * 38 * 2


def test_new_bytes_of_an_array_read_as_zero_if_asked(stamped: Stamped) -> None:
    old = stamped.allocate(8 * MIB)
    stamped.free(old)
    array = stamped.pool.allocate(MIB)
    assert array.resize(20 * MIB, zero=True)

    seen = bytearray(19 * MIB)
    stamped.source.copy(seen, array.ptr + MIB, 19 * MIB)
    assert not any(seen)
    array.free()


# Down the ladder, and back.


@pytest.mark.parametrize("rung", ["dalloc", "decommit", "purge_force", "free"])
def test_what_went_down_comes_back(stamped: Stamped, rung: str) -> None:
    small = [stamped.allocate(16 * MIB) for _ in range(6)]
    stamped.free(*small[::2])
    before = stamped.pool.stats().reserved_bytes
    went = stamped.pool.trim(rung=rung)
    assert went == 48 * MIB
    stamped.check()

    stamped.allocate(48 * MIB)

    stamped.check()
    assert stamped.pool.stats().reserved_bytes <= before + (48 * MIB if rung == "dalloc" else 0)


@pytest.mark.parametrize("rung", ["dalloc", "decommit", "purge_force", "free"])
def test_zeros_are_zeros(stamped: Stamped, rung: str) -> None:
    small = [stamped.allocate(4 * MIB) for _ in range(6)]
    stamped.free(*small[1::2])
    stamped.pool.trim(rung=rung)

    zeros = stamped.pool.allocate(12 * MIB, zero=True)

    seen = bytearray(b"\xff" * zeros.size)
    stamped.source.copy(seen, zeros.ptr, zeros.size)
    assert not any(seen)
    stamped.check()
    zeros.free()


def test_zeros_in_memory_that_was_moved(stamped: Stamped) -> None:
    """A pool of zeros clears what others have left behind, wherever that is now."""
    pool = Pool(stamped.source, zero=True, virtual=True)
    dirty = Stamped(pool)
    small = [dirty.allocate(4 * MIB) for _ in range(6)]
    dirty.free(*small[1::2])

    zeros = pool.allocate(12 * MIB)

    assert pool.stats().reserved_bytes == 24 * MIB
    seen = bytearray(b"\xff" * zeros.size)
    stamped.source.copy(seen, zeros.ptr, zeros.size)
    assert not any(seen)
    dirty.clear()
    zeros.free()
    end(pool)


def test_a_trim_that_keeps_some(stamped: Stamped) -> None:
    small = [stamped.allocate(16 * MIB) for _ in range(4)]
    stamped.free(*small[1:])

    went = stamped.pool.trim(40 * MIB)

    now = stamped.pool.stats()
    assert now.reserved_bytes == 64 * MIB - went
    assert 40 * MIB <= now.reserved_bytes <= 56 * MIB
    stamped.allocate(20 * MIB)
    assert reserved(stamped) <= 64


# Steps and chunks.


def test_a_pool_that_grows_takes_steps(provider: CudaVmmProvider) -> None:
    pool = Pool(provider, growth=VirtualGrowth(small_until=0, minimum=16 * MIB, divisor=1 << 20))
    held = []
    blocks = []
    for _ in range(10):
        blocks.append(pool.allocate(3 * MIB))
        held.append(pool.stats().reserved_bytes // MIB)

    assert held == [16, 16, 16, 16, 16, 32, 32, 32, 32, 32]
    blocks.clear()
    end(pool)


def test_chunks_are_small_where_much_lies_idle(provider: CudaVmmProvider) -> None:
    """A whole step is one chunk as long as all is used; later steps are cut."""
    pool = Pool(provider, growth=VirtualGrowth(small_until=1, minimum=48 * MIB, divisor=1 << 20))
    first = pool.allocate(48 * MIB)
    assert chunks(provider, first.ptr, 48 * MIB) == [48]
    small = [pool.allocate(UNIT) for _ in range(24)]
    assert chunks(provider, small[0].ptr, 48 * MIB) == [48]
    aside = elsewhere(first, *small)
    del small[1:]

    third = pool.allocate(48 * MIB, aside)

    assert chunks(provider, third.ptr, 48 * MIB) == [8] * 6
    small.clear()
    del first, third
    end(pool)


def chunks(provider: CudaVmmProvider, ptr: int, size: int) -> list[int]:
    """The chunks behind a range, in MiB."""
    start = ptr // UNIT * UNIT
    return [chunk.size // MIB for chunk in provider.chunks(start, size)]


def test_a_chunk_too_large_for_what_is_missing_stays(provider: CudaVmmProvider) -> None:
    """As long as the device has memory: it would have to be given back and made anew."""
    pool = Pool(provider)
    large = pool.allocate(200 * MIB)
    assert chunks(provider, large.ptr, 200 * MIB) == [200]
    large.free()

    aside = pool.allocate(100 * MIB, elsewhere(large))

    assert pool.stats().reserved_bytes == (200 + 100) * MIB
    aside.free()
    end(pool)


# What a pool is.


def test_which_pools_manage_addresses(provider: CudaVmmProvider) -> None:
    host = HostProvider()
    pools = {
        True: [Pool(provider), Pool(host, virtual=True), Pool(host, growth=VirtualGrowth())],
        False: [Pool(provider, virtual=False), Pool(host), Pool(Pool(provider))],
    }

    for virtual, made in pools.items():
        assert [pool.virtual for pool in made] == [virtual] * 3
    with pytest.raises(InvalidArgument, match=r"virtual=True needs a provider with RESERVE"):
        Pool(Pool(provider), virtual=True)


def test_an_empty_pool_holds_no_addresses(provider: CudaVmmProvider, emu: EmulatedCuda) -> None:
    pool = Pool(provider)
    assert pool.stats().unbacked_bytes == 0

    pool.allocate(1).free()

    assert pool.stats().unbacked_bytes >= emu.memory
    assert pool.trim() == pool.stats().peak_reserved_bytes
    assert pool.stats().extents == 0
    assert pool.map.free_ranges(SAFE) == []
    end(pool)
