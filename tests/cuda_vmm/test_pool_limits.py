"""Pools over virtual memory at a limit, or on a device that is full."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.stamped import Stamped, elsewhere
from umfpy import (
    CudaProvider,
    CudaVmmProvider,
    HostProvider,
    OutOfMemoryError,
    Pool,
    VirtualGrowth,
)
from umfpy.providers.emulated import EmulatedCuda

MIB = 1 << 20
UNIT = 2 * MIB
#: Takes no more than a request needs, in one chunk, however full the device is.
EXACT = VirtualGrowth(small_until=1 << 60, parts=1, scarce=1.0, left=1)


@pytest.fixture
def small(emu: EmulatedCuda) -> Iterator[CudaVmmProvider]:
    """A device of 256 MiB that is clean in the end."""
    emu.set_memory("256MiB")
    provider = CudaVmmProvider()
    yield provider
    assert provider.live_count() == 0
    provider.close()


def end(stamped: Stamped) -> None:
    stamped.check()
    stamped.clear()
    stamped.pool.close()
    assert stamped.pool.stats().extents == 0


# Limits.


def test_a_limit_is_kept_to_the_byte(provider: CudaVmmProvider) -> None:
    pool = Pool(provider, limit_bytes=64 * MIB)
    stamped = Stamped(pool)
    for _ in range(31):
        stamped.allocate(UNIT)
        stamped.allocate(0)
    stamped.allocate(UNIT - 31 * 512)
    assert pool.stats().reserved_bytes == 64 * MIB

    with pytest.raises(OutOfMemoryError, match=r"limit_bytes is 64\.00 MiB: raise it") as refusal:
        pool.allocate(1)

    error = refusal.value
    assert (error.requested, error.limit, error.reserved) == (1, 64 * MIB, 64 * MIB)
    assert (error.used, error.largest_free) == (64 * MIB, 0)
    assert error.provider == "cuda_vmm"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.limit) == (str(error), error.limit)
    pool.limit_bytes = 64 * MIB + 1
    with pytest.raises(OutOfMemoryError):
        pool.allocate(1)
    pool.limit_bytes = "66MiB"
    stamped.allocate(1)
    end(stamped)


@pytest.mark.parametrize("limit", [UNIT - 1, UNIT, 7 * MIB, 10 * MIB])
def test_a_step_stops_at_the_limit(provider: CudaVmmProvider, limit: int) -> None:
    """What a pool takes ahead of demand is never beyond it."""
    growth = VirtualGrowth(small_until=0, minimum=64 * MIB)
    pool = Pool(provider, growth=growth, limit_bytes=limit)

    blocks, _ = until_exhausted(lambda: pool.allocate(MIB))

    assert len(blocks) == limit // UNIT * 2
    assert pool.stats().peak_reserved_bytes == limit // UNIT * UNIT
    blocks.clear()
    pool.close()


def test_memory_moves_at_the_limit(provider: CudaVmmProvider) -> None:
    pool = Pool(provider, limit_bytes=128 * MIB)
    stamped = Stamped(pool)
    blocks = [stamped.allocate(16 * MIB) for _ in range(8)]
    with pytest.raises(OutOfMemoryError):
        pool.allocate(512)
    stamped.free(*blocks[::2])

    stamped.allocate(64 * MIB)

    assert pool.stats().peak_reserved_bytes == 128 * MIB
    end(stamped)


def test_a_chunk_larger_than_the_request_at_the_limit(provider: CudaVmmProvider) -> None:
    """It goes back to the device, and a part of it comes again."""
    pool = Pool(provider, limit_bytes=64 * MIB)
    stamped = Stamped(pool)
    large = stamped.allocate(48 * MIB)
    stamped.allocate(16 * MIB)
    stamped.free(large)

    stamped.allocate(40 * MIB, elsewhere(large))

    assert pool.stats().reserved_bytes == 56 * MIB
    assert pool.stats().peak_reserved_bytes == 64 * MIB
    end(stamped)


@pytest.mark.parametrize("saved", [512, 100 << 10, MIB])
def test_free_memory_that_saves_little_is_used_at_the_limit(
    provider: CudaVmmProvider, saved: int
) -> None:
    """As long as there is memory it is kept for smaller requests."""
    pool = Pool(provider, limit_bytes=44 * MIB)
    stamped = Stamped(pool)
    first = stamped.allocate(6 * MIB - saved)

    large = stamped.allocate(38 * MIB + saved)

    assert large.ptr == first.ptr + first.size
    assert pool.stats().reserved_bytes == 44 * MIB
    end(stamped)


def test_free_memory_that_saves_little_is_used_where_the_device_is_full(
    emu: EmulatedCuda, small: CudaVmmProvider
) -> None:
    """Before what lies idle in other pools, and before anybody is called."""
    pool, other = Pool(small, growth=EXACT), Pool(small, growth=EXACT)
    pool.on_out_of_memory(lambda missing: pytest.fail("there is memory"))
    stamped = Stamped(pool)
    idle = other.allocate(54 * MIB)
    stamped.allocate(5 * MIB)
    idle.free()

    stamped.allocate(196 * MIB + 1)

    assert other.stats().reserved_bytes == 54 * MIB
    assert pool.stats().reserved_bytes == 202 * MIB
    end(stamped)
    other.close()


def test_a_limit_below_what_is_held_takes_effect_as_memory_goes(
    provider: CudaVmmProvider,
) -> None:
    pool = Pool(provider)
    stamped = Stamped(pool)
    blocks = [stamped.allocate(8 * MIB) for _ in range(4)]
    pool.limit_bytes = 16 * MIB
    stamped.check()

    with pytest.raises(OutOfMemoryError):
        pool.allocate(512)
    stamped.free(*blocks[:2])
    stamped.allocate(16 * MIB)
    with pytest.raises(OutOfMemoryError):
        pool.allocate(512)
    stamped.free(*blocks[2:])
    with pytest.raises(OutOfMemoryError):
        pool.allocate(UNIT, elsewhere(*blocks, *stamped.live))

    assert pool.stats().reserved_bytes == 16 * MIB
    end(stamped)


def test_hidden_memory_counts_at_the_limit_and_comes_back_there(provider: CudaVmmProvider) -> None:
    pool = Pool(provider, limit_bytes=32 * MIB)
    stamped = Stamped(pool)
    first, second = stamped.allocate(16 * MIB), stamped.allocate(16 * MIB)
    stamped.free(first)
    assert pool.trim(rung="dalloc") == 16 * MIB
    assert pool.stats().reserved_bytes == 32 * MIB

    stamped.allocate(10 * MIB)

    assert pool.stats().hidden_bytes == 0
    assert second in stamped.live
    end(stamped)


def test_what_is_held_serves_requests_below_the_limit_too(provider: CudaVmmProvider) -> None:
    """It takes nothing from the device to show hidden memory, or to move what is free."""
    pool = Pool(provider, growth=EXACT)
    stamped = Stamped(pool)
    blocks = [stamped.allocate(8 * MIB) for _ in range(6)]
    stamped.free(blocks[0], blocks[2])
    pool.limit_bytes = 20 * MIB
    stamped.allocate(16 * MIB)
    stamped.free(blocks[4])
    assert pool.trim(rung="dalloc") == 8 * MIB

    stamped.allocate(8 * MIB)

    assert pool.stats().reserved_bytes == 48 * MIB
    end(stamped)


@pytest.mark.parametrize("size", [20 * MIB, 30 * MIB])
def test_a_block_grows_up_to_the_limit(provider: CudaVmmProvider, size: int) -> None:
    pool = Pool(provider, limit_bytes=20 * MIB)
    stamped = Stamped(pool)
    array = stamped.allocate(4 * MIB)

    assert stamped.resize(array, size) is (size == 20 * MIB)
    assert pool.stats().reserved_bytes == (20 if size == 20 * MIB else 4) * MIB
    end(stamped)


# A device that is full.


def test_all_of_a_device_can_be_used_and_used_again(small: CudaVmmProvider) -> None:
    pool = Pool(small)
    stamped = Stamped(pool)
    blocks, error = until_exhausted(lambda: stamped.allocate(UNIT))
    assert len(blocks) == 128
    assert "device: 0 B of 256.00 MiB free" in str(error)

    stamped.free(*blocks[::2])
    stamped.allocate(128 * MIB)

    with pytest.raises(OutOfMemoryError):
        pool.allocate(1)
    end(stamped)


@pytest.mark.parametrize("size", [3 * MIB, 5 * MIB, 31 * MIB, 62 * MIB])
def test_chunks_of_any_size_serve_any_size(small: CudaVmmProvider, size: int) -> None:
    """All that lies in chunks in which nothing is used, whatever their sizes."""
    pool = Pool(small, growth=EXACT)
    stamped = Stamped(pool)
    blocks, _ = until_exhausted(lambda: stamped.allocate(size))
    rest, _ = until_exhausted(lambda: stamped.allocate(UNIT))
    stamped.free(*(block for index, block in enumerate(blocks) if index % 4), *rest)
    idle = idle_bytes(pool)
    assert idle >= 60 * MIB

    big = stamped.allocate(idle, elsewhere(*blocks))
    stamped.free(big)
    aside = elsewhere(*blocks, big)
    for _ in range(3):
        stamped.allocate(idle // 3 // UNIT * UNIT, aside)

    end(stamped)


def idle_bytes(pool: Pool) -> int:
    """What the device has left, and what chunks have in which nothing is used."""
    used = [(start, start + span) for start, span, is_used, _ in pool.map.blocks() if is_used]
    free, _ = pool.provider.memory_info()
    return free + sum(
        chunk.size
        for extent in pool.map.extents.values()
        for chunk in pool.provider.chunks(extent.base, extent.size)
        if all(end <= chunk.ptr or chunk.ptr + chunk.size <= start for start, end in used)
    )


def test_a_free_chunk_larger_than_the_request_on_a_full_device(small: CudaVmmProvider) -> None:
    """It is given up and made anew: nothing else has memory."""
    pool = Pool(small, growth=EXACT)
    stamped = Stamped(pool)
    large = stamped.allocate(100 * MIB)
    stamped.allocate(156 * MIB)
    stamped.free(large)
    held = small.reserved_bytes

    one = stamped.allocate(30 * MIB, elsewhere(large))
    stamped.allocate(60 * MIB, elsewhere(large, one))

    assert small.reserved_bytes <= held
    end(stamped)


@pytest.mark.parametrize("at_limit", [False, True])
def test_a_block_grows_out_of_a_chunk_that_is_too_large(
    small: CudaVmmProvider, at_limit: bool
) -> None:
    """There would not be room for a copy: to grow in place is the only way."""
    pool = Pool(small, growth=EXACT, limit_bytes="200MiB" if at_limit else None)
    stamped = Stamped(pool)
    array = stamped.allocate(80 * MIB)
    large = stamped.allocate(120 * MIB, elsewhere(array))
    if not at_limit:
        stamped.allocate(56 * MIB, elsewhere(array))
    stamped.free(large)

    assert stamped.resize(array, 150 * MIB)

    assert pool.stats().peak_reserved_bytes == (200 if at_limit else 256) * MIB
    assert not array.resize(250 * MIB)
    end(stamped)


def test_only_as_many_chunks_go_as_it_takes(small: CudaVmmProvider) -> None:
    """The smallest first; the others stay where they are."""
    pool = Pool(small, growth=EXACT)
    stamped = Stamped(pool)
    blocks = [stamped.allocate(size * MIB) for size in (100, 40, 30, 86)]
    stamped.free(*blocks[:3])
    gone = []
    decommit = small.decommit
    small.decommit = lambda ptr, size: (gone.append(size // MIB), decommit(ptr, size))

    stamped.allocate(20 * MIB, elsewhere(*blocks))

    assert gone == [30]
    del small.decommit
    end(stamped)


def test_what_the_provider_keeps_serves_a_full_device(small: CudaVmmProvider) -> None:
    pool = Pool(small, growth=EXACT)
    stamped = Stamped(pool)
    blocks = [stamped.allocate(4 * MIB) for _ in range(64)]
    stamped.free(blocks[7])
    assert pool.trim(rung="decommit") == 4 * MIB
    assert small.kept_bytes == 4 * MIB

    one = stamped.allocate(UNIT)
    stamped.allocate(UNIT, elsewhere(one))

    assert small.kept_bytes == 0
    end(stamped)


def test_a_step_that_does_not_fit_is_what_the_request_needs(small: CudaVmmProvider) -> None:
    pool = Pool(small, growth=VirtualGrowth(small_until=0, minimum=64 * MIB))
    stamped = Stamped(pool)
    stamped.allocate(240 * MIB)

    for _ in range(8):
        stamped.allocate(UNIT)

    assert pool.stats().reserved_bytes == 256 * MIB
    end(stamped)


@pytest.mark.parametrize(
    "size", [256 * MIB + 1, 1 << 40, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 70]
)
def test_more_than_the_device_has_costs_nobody_anything(small: CudaVmmProvider, size: int) -> None:
    idle, pool = Pool(small), Pool(small)
    idle.allocate(64 * MIB).free()
    pool.allocate(64 * MIB).free()
    asked = []
    pool.on_out_of_memory(lambda missing: bool(asked.append(missing)))

    with pytest.raises(OutOfMemoryError):
        pool.allocate(size)

    assert [one.stats().reserved_bytes for one in (idle, pool)] == [64 * MIB] * 2
    assert asked == []
    for one in (idle, pool):
        one.close()


@pytest.mark.parametrize("alignment", [1 << 47, 1 << 62, 1 << 63])
@pytest.mark.parametrize("host", [False, True])
def test_an_alignment_that_no_address_has(
    provider: CudaVmmProvider, alignment: int, host: bool
) -> None:
    pool = Pool(HostProvider() if host else provider, virtual=True)
    pool.allocate(1).free()

    with pytest.raises(OutOfMemoryError):
        pool.allocate(1, alignment)

    pool.close()
    assert pool.stats().extents == 0


# Neighbours, and callbacks.


def test_pools_of_one_device_give_way_to_each_other(small: CudaVmmProvider) -> None:
    """Also what lies free beside live memory."""
    pools = [Pool(small, growth=EXACT) for _ in range(2)]
    idle, busy = (Stamped(pool) for pool in pools)
    blocks = [idle.allocate(16 * MIB) for _ in range(12)]
    idle.free(*blocks[::2])
    assert pools[0].stats().free_bytes == 96 * MIB

    busy.allocate(160 * MIB)

    assert pools[0].stats().free_bytes == 0
    idle.check()
    with pytest.raises(OutOfMemoryError):
        pools[1].allocate(UNIT)
    for stamped in (busy, idle):
        end(stamped)


def test_providers_of_one_device_give_way_to_each_other(small: CudaVmmProvider) -> None:
    other = CudaVmmProvider()
    idle, busy = Stamped(Pool(other)), Stamped(Pool(small))
    gone = idle.allocate(200 * MIB)
    idle.allocate(UNIT)
    idle.free(gone)

    busy.allocate(240 * MIB)

    assert idle.pool.stats().reserved_bytes == UNIT
    for stamped in (busy, idle):
        end(stamped)
    other.close()


def test_a_plain_pool_and_a_virtual_one(small: CudaVmmProvider) -> None:
    plain = Pool(CudaProvider())
    virtual = Stamped(Pool(small))
    for _ in range(2):
        big = plain.malloc(200 * MIB)
        plain.free(big)
        one = virtual.allocate(200 * MIB)
        assert plain.stats().reserved_bytes == 0
        virtual.free(one)
    plain.close()
    plain.provider.close()
    end(virtual)


def test_callbacks_are_asked_for_what_is_missing(small: CudaVmmProvider) -> None:
    pool = Pool(small)
    stamped = Stamped(pool)
    cache = [stamped.allocate(64 * MIB) for _ in range(4)]
    aside = elsewhere(*cache)
    asked = []

    def stingy(missing: int) -> bool:
        asked.append(("stingy", missing))
        return False

    def generous(missing: int) -> bool:
        asked.append(("generous", missing))
        stamped.free(cache.pop(0))
        return True

    pool.on_out_of_memory(stingy)
    pool.on_out_of_memory(generous)

    stamped.allocate(48 * MIB, aside)

    assert asked == [("stingy", 48 * MIB), ("generous", 48 * MIB)]
    end(stamped)


def test_a_callback_may_use_the_pool(small: CudaVmmProvider) -> None:
    """It runs without a lock: to allocate there, trim and resize is as good as anywhere else."""
    pool = Pool(small)
    stamped = Stamped(pool)
    first, second = stamped.allocate(128 * MIB), stamped.allocate(128 * MIB)

    def shrink(missing: int) -> bool:
        assert stamped.resize(first, 32 * MIB)
        pool.trim(rung="decommit")
        stamped.allocate(MIB)
        return True

    pool.on_out_of_memory(shrink)
    stamped.allocate(64 * MIB)

    assert second in stamped.live
    end(stamped)
