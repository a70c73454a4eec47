"""Free memory that went down a rung comes back before a pool takes more of its provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.laddered import RUNGS, LadderedProvider, agree, end, states
from tests.fakes.ladders import KINDS, LOWERING, pattern, provider_of, read, write
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import AlignmentError, Capability, Growth, HostProvider, OutOfMemoryError, Pool
from umfpy.core.extents import HIDDEN, SAFE, UNBACKED

KIB, MIB = 1 << 10, 1 << 20
UNIT = 4 * KIB
GROWTH = Growth(256 * KIB, 256 * KIB)
EVERYTHING = Capability.SPLIT | RUNGS | Capability.STREAMS
ASLEEP = ("dalloc", "decommit")


class StrictProvider(LadderedProvider):
    """Refuses to split where it has not said that it can."""

    def split(self, ptr: int, size: int, first_size: int) -> None:
        if Capability.SPLIT not in self.capabilities:
            raise self._lacks(Capability.SPLIT)
        super().split(ptr, size, first_size)


@pytest.fixture
def provider() -> LadderedProvider:
    return LadderedProvider()


@pytest.fixture
def pool(provider: LadderedProvider) -> Iterator[Pool]:
    """A pool from which everything goes back in the end."""
    made = Pool(provider, growth=GROWTH)
    yield made
    end(made, provider)


# Coming back, over every provider that has rungs.


@pytest.mark.parametrize("rung", ASLEEP)
@pytest.mark.parametrize("kind", LOWERING)
def test_what_went_down_comes_back_and_nothing_is_taken(
    kind: str, rung: str, tmp_path: Path
) -> None:
    with provider_of(kind, tmp_path) as source:
        # given free memory that went down, between live memory
        pool = Pool(source, virtual=False, growth=Growth(16 * MIB, 16 * MIB))
        size = 2 * MIB + 300
        made = [pool.malloc(size) for _ in range(6)]
        for ptr in made:
            write(source, ptr, pattern(ptr, size))
        for ptr in made[1::2]:
            pool.free(ptr)
        before = pool.stats()
        went = pool.trim(rung=rung)
        assert went >= 4 * MIB
        assert went.rung == KINDS[kind].taken[("dalloc", "purge_lazy", "decommit").index(rung)]

        # when as much is asked for again
        again = [pool.malloc(size) for _ in range(3)]
        for ptr in again:
            write(source, ptr, pattern(ptr + 1, size))

        # then it is the same memory, and live memory has every byte
        now = pool.stats()
        assert (now.extents, now.provider_allocs) == (before.extents, before.provider_allocs)
        assert now.reserved_bytes <= before.reserved_bytes
        if went.rung == "dalloc":
            assert sorted(again) == sorted(made[1::2])
        pool.check("full")
        for ptr in made[::2]:
            assert read(source, ptr, size) == pattern(ptr, size)
        for ptr in again:
            assert read(source, ptr, size) == pattern(ptr + 1, size)
        for ptr in (*made[::2], *again):
            pool.free(ptr)
        pool.close()
        assert source.live_count() == 0


@pytest.mark.parametrize("rung", ASLEEP)
@pytest.mark.parametrize("kind", LOWERING)
def test_zeros_are_zeros_in_memory_that_was_away(kind: str, rung: str, tmp_path: Path) -> None:
    with provider_of(kind, tmp_path) as source, Pool(source, virtual=False) as pool:
        keep = pool.malloc(512)
        size = 3 * MIB
        used = pool.malloc(size)
        write(source, used, b"\xa5" * size)
        pool.free(used)
        pool.trim(rung=rung)

        zeros = pool.malloc(size, zero=True)

        assert read(source, zeros, size) == bytes(size)
        pool.free(zeros)
        pool.free(keep)


def test_only_what_is_needed_gets_memory(pool: Pool, provider: LadderedProvider) -> None:
    keep = pool.malloc(UNIT)
    pool.trim(rung="decommit")
    assert states(pool) == [(252, UNBACKED)]

    pool.malloc(5000)

    assert pool.stats().reserved_bytes == 3 * UNIT
    assert states(pool) == [(3, SAFE), (244, UNBACKED)]
    assert provider.counts["alloc"] == 1
    assert keep in provider.live


def test_what_is_hidden_comes_back_as_it_went(pool: Pool, provider: LadderedProvider) -> None:
    """It has memory: to leave some of it hidden saves nothing."""
    pool.malloc(UNIT)
    pool.trim(rung="dalloc")

    pool.malloc(5000)

    assert states(pool) == [(247, SAFE)]
    assert pool.stats().hidden_bytes == 0
    assert provider.counts["alloc"] == 1


def test_a_request_may_lie_in_memory_of_every_state(pool: Pool, provider: LadderedProvider) -> None:
    first, second, third, last = (pool.malloc(size * KIB) for size in (64, 64, 64, 64))
    pool.free(first)
    pool.trim(rung="decommit")
    pool.free(second)
    pool.trim(rung="dalloc")
    pool.free(third)
    assert states(pool) == [(64, UNBACKED), (64, HIDDEN), (64, SAFE)]

    assert pool.malloc(150 * KIB) == first + 42 * KIB - 42 * KIB % UNIT
    assert pool.stats().reserved_bytes == 216 * KIB
    assert last in [start for start, _, used, _ in pool.map.blocks() if used]


def test_of_several_places_the_one_that_needs_least(pool: Pool) -> None:
    made = [pool.malloc(32 * KIB) for _ in range(8)]
    for at in (0, 1, 4, 5):
        pool.free(made[at])
    pool.trim(rung="decommit")
    held = pool.malloc(30 * KIB)  # at one end of either hole
    pool.free(held)

    pool.malloc(64 * KIB)

    assert pool.stats().reserved_bytes == (4 + 2) * 32 * KIB


# Extents.


@pytest.mark.parametrize("rung", ASLEEP)
def test_a_request_larger_than_any_extent_that_is_asleep(
    pool: Pool, provider: LadderedProvider, rung: str
) -> None:
    """Extents may lie side by side, and yet no block reaches from one into the next."""
    made = [pool.malloc(256 * KIB) for _ in range(4)]
    assert [one + 256 * KIB for one in made[:-1]] == made[1:]
    for ptr in made:
        pool.free(ptr)
    first = pool.malloc(UNIT)
    pool.trim(rung=rung)

    ptr = pool.malloc(400 * KIB)

    assert provider.live[ptr] >= 400 * KIB
    pool.free(first)


def test_a_request_is_not_served_from_two_extents(pool: Pool, provider: LadderedProvider) -> None:
    made = [pool.malloc(128 * KIB) for _ in range(4)]
    assert made[2] == made[1] + 128 * KIB
    for ptr in made[1:3]:
        pool.free(ptr)
    pool.trim(rung="dalloc")

    ptr = pool.malloc(200 * KIB)

    assert ptr not in made
    assert states(pool)[:2] == [(128, HIDDEN), (128, HIDDEN)], "what could not serve it sleeps on"
    assert provider.counts["alloc"] == 3


@pytest.mark.parametrize("rung", ASLEEP)
def test_a_provider_that_cannot_split(rung: str) -> None:
    """An extent went down as a whole, and comes back so."""
    provider = StrictProvider(EVERYTHING & ~Capability.SPLIT)
    pool = Pool(provider, growth=GROWTH)
    pool.free(pool.malloc(100))
    assert pool.trim(rung=rung) == 256 * KIB

    pool.malloc(5000)

    assert (provider.counts["alloc"], provider.counts["commit"]) == (1, 1)
    assert pool.stats().reserved_bytes == 256 * KIB
    end(pool, provider)


def test_wholly_free_extents_that_sleep_go_back_for_a_larger_one(
    pool: Pool, provider: LadderedProvider
) -> None:
    pool.free(pool.malloc(256 * KIB))
    pool.trim(rung="decommit")

    pool.malloc(MIB)

    assert pool.stats().unbacked_bytes == 0
    assert len(provider.live) == 1


# Limits.


def test_memory_that_comes_back_counts(provider: LadderedProvider, pool: Pool) -> None:
    keep = pool.malloc(UNIT)
    pool.trim(rung="decommit")
    pool.limit_bytes = 4 * UNIT

    with pytest.raises(OutOfMemoryError, match=r"limit_bytes is 16\.00 KiB") as refusal:
        pool.malloc(4 * UNIT)
    assert (refusal.value.limit, refusal.value.requested) == (4 * UNIT, 4 * UNIT)
    assert pool.stats().reserved_bytes == UNIT
    pool.free(pool.malloc(3 * UNIT))
    assert pool.stats().reserved_bytes == 4 * UNIT
    pool.free(keep)


def test_hidden_memory_comes_back_at_the_limit(pool: Pool) -> None:
    """It is held in any case."""
    pool.malloc(UNIT)
    pool.trim(rung="dalloc")
    pool.limit_bytes = pool.stats().reserved_bytes

    assert pool.malloc(252 * KIB)


def test_a_limit_below_what_is_held(pool: Pool) -> None:
    pool.malloc(128 * KIB)
    pool.trim(rung="decommit")
    pool.limit_bytes = UNIT

    with pytest.raises(OutOfMemoryError):
        pool.malloc(UNIT)
    assert states(pool) == [(128, UNBACKED)]


@pytest.mark.parametrize("limit", [700, 704, 1000, 1024])
def test_a_limit_that_holds_no_whole_granules(limit: int) -> None:
    """A provider's unit may be smaller than what pools cut memory in."""
    provider = FakeProvider(granule=512, unit=64)
    pool = Pool(provider, limit_bytes=limit)

    if limit < 1024:
        with pytest.raises(OutOfMemoryError):
            pool.malloc(700)
        assert not provider.live
    else:
        pool.free(pool.malloc(700))
        pool.close()


def test_a_provider_that_does_not_align_is_found_out() -> None:
    """What such an extent holds of whole granules is less than what was asked for."""
    provider = FakeProvider(granule=512, unit=4096, offset=100)
    pool = Pool(provider)

    with pytest.raises(AlignmentError, match="alignment of 512 bytes"):
        pool.malloc(4 * MIB)
    assert not provider.live


# The provider refuses.


def decommitted(pool: Pool) -> int:
    """Memory beside live memory, all of it without backing."""
    keep = pool.malloc(128 * KIB)
    pool.trim(rung="decommit")
    assert states(pool) == [(128, UNBACKED)]
    return keep


def test_no_memory_to_wake_with_and_none_to_grow_with(
    provider: LadderedProvider, pool: Pool
) -> None:
    """Then nothing has changed."""
    decommitted(pool)
    provider.capacity = provider.live_bytes
    before = picture(pool)
    provider.commit = out_of_memory

    with pytest.raises(OutOfMemoryError, match="free or drop allocations") as error:
        pool.malloc(64 * KIB)

    assert error.value.requested == 64 * KIB
    assert picture(pool) == before
    del provider.commit
    assert pool.malloc(64 * KIB)


def out_of_memory(*arguments: object, **options: object) -> None:
    raise OutOfMemoryError("as told")


def test_no_memory_to_wake_with_but_some_to_grow_with(
    provider: LadderedProvider, pool: Pool
) -> None:
    decommitted(pool)
    provider.commit = out_of_memory

    ptr = pool.malloc(64 * KIB)

    assert ptr in provider.live, "a new extent"
    del provider.commit


@pytest.mark.parametrize("rung", ASLEEP)
def test_another_failure_is_told_and_changes_nothing(
    provider: LadderedProvider, pool: Pool, rung: str
) -> None:
    pool.malloc(128 * KIB)
    pool.trim(rung=rung)
    before = picture(pool)
    provider.commit = failing

    with pytest.raises(FakeFailure):
        pool.malloc(64 * KIB)

    assert picture(pool) == before
    agree(pool, provider)
    del provider.commit
    assert pool.malloc(64 * KIB)
    assert provider.counts["alloc"] == 1


def failing(*arguments: object, **options: object) -> None:
    raise FakeFailure("as told")


class Script:
    """Wakes memory of each state, for requests and for blocks that grow."""

    def __init__(self, capabilities: Capability) -> None:
        self.provider = StrictProvider(capabilities)
        self.pool = Pool(self.provider, growth=GROWTH)
        self.live: list[int] = []
        self.failures = 0

    def step(self, call, *arguments: object, **options: object):
        """A call that may fail: then live memory is as it was, and the second time it works."""
        before = self.used()
        try:
            return call(*arguments, **options)
        except FakeFailure:
            self.failures += 1
            agree(self.pool, self.provider)
            assert self.used() == before
            return call(*arguments, **options)

    def used(self) -> list[tuple[int, int, bool, int]]:
        return [block for block in self.pool.map.blocks() if block[2]]

    def run(self) -> None:
        pool, step = self.pool, self.step
        array = step(pool.allocate, 30 * KIB)
        self.live = [step(pool.malloc, size * KIB) for size in (90, 20, 100, 12)]
        for rung in ASLEEP:
            for at in (0, 2):
                pool.free(self.live[at])
            step(pool.trim, rung=rung)
            self.live[2] = step(pool.malloc, 100 * KIB)
            self.live[0] = step(pool.malloc, 60 * KIB)
            pool.free(self.live[0])
            step(pool.trim, rung=rung)
            step(array.resize, 70 * KIB)  # a failure before may have others lie behind it
            assert step(array.resize, 30 * KIB)
            self.live[0] = step(pool.malloc, 50 * KIB)
        pool.free(self.live[1])
        step(pool.trim, rung="decommit")
        step(pool.trim, rung="dalloc")
        self.live[1] = step(pool.malloc, 40 * KIB)
        array.free()

    def end(self) -> None:
        self.provider.recover()
        end(self.pool, self.provider)


def test_every_call_may_fail_and_works_again() -> None:
    whole = Script(EVERYTHING)
    whole.run()
    whole.end()
    calls = len(whole.provider.calls)
    assert whole.provider.counts["commit"] == 8
    failures = 0

    for nth in range(1, calls + 1):
        script = Script(EVERYTHING)
        script.provider.fail(nth)
        script.run()
        script.end()
        failures += script.failures

    assert failures > calls // 2


# Growing in place.


@pytest.mark.parametrize("rung", ASLEEP)
def test_a_block_grows_into_memory_that_went_down(rung: str) -> None:
    source = HostProvider()
    pool = Pool(source, growth=Growth(4 * MIB, 4 * MIB))
    array = pool.allocate(MIB)
    write(source, array.ptr, pattern(array.ptr, MIB))
    pool.trim(rung=rung)

    assert array.resize(3 * MIB + 5)

    assert read(source, array.ptr, MIB) == pattern(array.ptr, MIB)
    write(source, array.ptr, bytes(3 * MIB + 5))
    pool.check("full")
    assert pool.stats().extents == 1
    array.free()
    pool.close()
    assert source.live_count() == 0


def test_a_block_that_grows_wakes_nothing_of_the_next_extent(
    pool: Pool, provider: LadderedProvider
) -> None:
    array = pool.allocate(200 * KIB)
    other = pool.malloc(256 * KIB)
    assert other == array.ptr + 256 * KIB
    pool.free(other)
    pool.trim(rung="dalloc")
    before = picture(pool)

    assert not array.resize(300 * KIB)
    assert picture(pool) == before
    assert array.resize(256 * KIB)
    array.free()


def test_a_block_does_not_grow_beyond_the_limit(pool: Pool) -> None:
    array = pool.allocate(128 * KIB)
    pool.trim(rung="decommit")
    pool.limit_bytes = 160 * KIB
    before = picture(pool)

    assert not array.resize(200 * KIB)
    assert picture(pool) == before
    assert array.resize(160 * KIB)
    array.free()


def test_a_block_grows_only_if_there_is_memory(pool: Pool, provider: LadderedProvider) -> None:
    array = pool.allocate(128 * KIB)
    pool.trim(rung="decommit")
    before = picture(pool)
    provider.commit = out_of_memory

    assert not array.resize(200 * KIB)
    assert picture(pool) == before
    provider.commit = failing
    with pytest.raises(FakeFailure):
        array.resize(200 * KIB)
    assert picture(pool) == before
    assert array.size == 128 * KIB
    del provider.commit
    assert array.resize(200 * KIB)
    array.free()


@pytest.mark.parametrize("size", [(1 << 63) - 1, 1 << 63, (1 << 64) - 1, 1 << 70])
def test_a_block_cannot_have_all_there_is(pool: Pool, size: int) -> None:
    array = pool.allocate(UNIT)
    pool.trim(rung="decommit")
    before = picture(pool)

    assert not array.resize(size)
    assert picture(pool) == before
    array.free()


# Streams.


def test_memory_that_comes_back_is_every_streams(pool: Pool, provider: LadderedProvider) -> None:
    """It was waited for when it went."""
    pool.malloc(64 * KIB, 0, 1)
    pool.free(pool.malloc(64 * KIB, 0, 2))
    pool.trim(rung="decommit")
    before = dict(provider.counts)

    pool.malloc(64 * KIB, 0, 3)

    assert provider.counts["commit"] == 1
    for call in ("alloc", "synchronize"):
        assert provider.counts[call] == before[call]


def test_a_block_does_not_grow_into_what_another_stream_may_use(
    pool: Pool, provider: LadderedProvider
) -> None:
    array = pool.allocate(64 * KIB, 0, 1)
    pool.malloc(0, 0, 2)
    pool.synchronize()
    behind = pool.malloc(64 * KIB, 0, 2)
    assert behind == array.ptr + 64 * KIB
    pool.trim(rung="decommit")
    pool.free(behind)
    before = picture(pool)

    assert not array.resize(100 * KIB)
    assert not array.resize(200 * KIB)

    assert picture(pool) == before
    pool.synchronize()
    assert array.resize(200 * KIB)
    array.free()
