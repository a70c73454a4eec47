"""Slabs go down a rung as a whole, and come back when their bucket needs cells."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.laddered import RUNGS as EVERY_RUNG
from tests.fakes.laddered import LadderedProvider
from tests.fakes.provider import FakeFailure
from umfpy import Capability, InvalidArgument, OutOfMemoryError, ProxyPool, SharedLimit, SlabPool
from umfpy.pools.rungs import RUNGS
from umfpy.pools.slab import SlabPool as Slabs

KIB = 1 << 10
SLAB = 64 * KIB
CAPABILITIES = Capability.SPLIT | EVERY_RUNG | Capability.STREAMS


@pytest.fixture
def provider() -> LadderedProvider:
    return LadderedProvider(CAPABILITIES)


@pytest.fixture
def pool(provider: LadderedProvider) -> Iterator[SlabPool]:
    made = SlabPool(provider, slab_size=SLAB)
    yield made
    made.check("full")
    assert made.stats().live_allocations == 0
    made.close()
    assert not provider.live
    assert made.stats().unbacked_bytes == 0


def idle(pool: Slabs, cell: int, slabs: int) -> None:
    """Let a bucket have so many idle slabs."""
    made = [pool.malloc(cell) for _ in range(slabs * (SLAB // cell))]
    for ptr in made:
        pool.free(ptr)


def bytes_of(pool: Slabs) -> tuple[int, int, int]:
    now = pool.stats()
    return now.reserved_bytes, now.hidden_bytes, now.unbacked_bytes


@pytest.mark.parametrize(
    ("rung", "left"),
    [
        ("dalloc", (2 * SLAB, 2 * SLAB, 0)),
        ("purge_lazy", (2 * SLAB, 0, 0)),
        ("decommit", (0, 0, 2 * SLAB)),
        ("purge_force", (2 * SLAB, 0, 0)),
        ("free", (0, 0, 0)),
    ],
)
def test_idle_slabs_go_down(pool: SlabPool, rung: str, left: tuple[int, int, int]) -> None:
    idle(pool, 4 * KIB, 2)

    went = pool.trim(rung=rung)

    assert (went, went.rung) == (2 * SLAB, rung)
    assert bytes_of(pool) == left


@pytest.mark.parametrize("rung", RUNGS)
def test_a_slab_with_a_live_cell_stays_as_it_is(
    pool: SlabPool, provider: LadderedProvider, rung: str
) -> None:
    live = pool.malloc(8 * KIB)
    before = len(provider.calls)

    went = pool.trim(rung=rung)

    assert (went, went.rung) == (0, None)
    assert len(provider.calls) == before
    pool.free(live)


@pytest.mark.parametrize(("rung", "commits"), [("dalloc", 2), ("decommit", 2), ("free", 0)])
def test_slabs_come_back_before_new_ones_are_taken(
    pool: SlabPool, provider: LadderedProvider, rung: str, commits: int
) -> None:
    idle(pool, 4 * KIB, 2)
    pool.trim(rung=rung)
    before = provider.counts["alloc"]

    made = [pool.malloc(4 * KIB) for _ in range(2 * SLAB // (4 * KIB) + 1)]

    pool.check("full")
    assert provider.counts["commit"] == commits
    assert provider.counts["alloc"] - before == 3 - commits
    for ptr in made:
        assert all(provider.state(ptr + at) == 0 for at in range(0, 4 * KIB, KIB))
        pool.free(ptr)


def test_a_slab_that_cannot_come_back_stays_down(
    pool: SlabPool, provider: LadderedProvider
) -> None:
    idle(pool, 4 * KIB, 1)
    pool.trim(rung="decommit")
    provider.fail(1)

    with pytest.raises(FakeFailure):
        pool.malloc(4 * KIB)

    assert bytes_of(pool) == (0, 0, SLAB)
    ptr = pool.malloc(4 * KIB)
    assert bytes_of(pool) == (SLAB, 0, 0)
    pool.free(ptr)


def test_what_comes_back_is_within_the_limit(pool: SlabPool, provider: LadderedProvider) -> None:
    idle(pool, 4 * KIB, 2)
    pool.trim(rung="decommit")
    pool.limit_bytes = SLAB
    made = [pool.malloc(4 * KIB) for _ in range(SLAB // (4 * KIB))]

    with pytest.raises(OutOfMemoryError):
        pool.malloc(4 * KIB)

    assert bytes_of(pool)[0] == SLAB
    for ptr in made:
        pool.free(ptr)


def test_where_no_memory_comes_back_a_smaller_slab_may_be_had(
    pool: SlabPool, provider: LadderedProvider
) -> None:
    idle(pool, 4 * KIB, 1)
    pool.trim(rung="decommit")
    provider.fail(1, OutOfMemoryError("as told"))
    provider.fail(2, OutOfMemoryError("as told"))

    ptr = pool.malloc(4 * KIB)

    assert bytes_of(pool) == (4 * KIB, 0, SLAB)
    pool.free(ptr)


def test_what_another_stream_freed_is_taken_before_a_slab_comes_back(
    pool: SlabPool, provider: LadderedProvider
) -> None:
    idle(pool, 32 * KIB, 1)
    pool.trim(rung="decommit")
    first, second = pool.malloc(32 * KIB, 0, 1), pool.malloc(32 * KIB, 0, 2)
    pool.free(first)
    commits, waits = provider.counts["commit"], provider.counts["synchronize"]

    again = pool.malloc(32 * KIB, 0, 2)

    assert again == first
    assert provider.counts["commit"] == commits
    assert provider.counts["synchronize"] == waits + 1
    pool.free(again)
    pool.free(second)


def test_as_much_as_it_is_told_to_stays_ready(pool: SlabPool) -> None:
    idle(pool, 4 * KIB, 1)
    idle(pool, 8 * KIB, 1)
    idle(pool, 16 * KIB, 1)
    assert pool.trim(3 * SLAB, rung="dalloc") == 0
    assert pool.trim(2 * SLAB, rung="dalloc") == SLAB
    assert pool.trim(2 * SLAB, rung="decommit") == SLAB, "what is hidden is not ready"
    assert bytes_of(pool) == (2 * SLAB, 0, SLAB)
    assert pool.trim(SLAB, rung="purge_force") == SLAB
    assert pool.trim(SLAB) == SLAB
    assert bytes_of(pool) == (SLAB, 0, 0)


def test_slabs_without_memory_are_not_idle(provider: LadderedProvider) -> None:
    """They are no part of what a shared limit bounds, nor of what a bucket may keep."""
    limit = SharedLimit(2 * SLAB)
    pool = SlabPool(provider, slab_size=SLAB, capacity=2, shared_limit=limit)
    idle(pool, 4 * KIB, 2)
    pool.trim(rung="decommit")
    assert (pool.idle_bytes, limit.idle_bytes) == (0, 0)
    idle(pool, 8 * KIB, 2)
    assert bytes_of(pool) == (2 * SLAB, 0, 2 * SLAB)
    (cells,) = [each for each in pool.buckets() if each.cell_bytes == 4 * KIB]
    assert (cells.slabs, cells.idle_slabs) == (2, 0)
    pool.close()
    assert not provider.live


@pytest.mark.parametrize(
    "wrong", [{"keep_slabs": 1, "rung": "dalloc"}, {"keep_slabs": -1}, {"rung": "most"}]
)
def test_what_goes_with_what(pool: SlabPool, wrong: dict[str, object]) -> None:
    idle(pool, 4 * KIB, 1)
    with pytest.raises(InvalidArgument):
        pool.trim(**wrong)
    assert bytes_of(pool) == (SLAB, 0, 0)


def test_idle_slabs_that_stay(pool: SlabPool) -> None:
    idle(pool, 4 * KIB, 3)
    went = pool.trim(keep_slabs=1)
    assert (went, went.rung) == (2 * SLAB, "free")
    assert pool.trim(keep_slabs=1).rung is None


@pytest.mark.parametrize("rung", RUNGS)
def test_a_pool_that_keeps_nothing(provider: LadderedProvider, rung: str) -> None:
    with ProxyPool(provider) as pool:
        ptr = pool.malloc(8 * KIB)
        went = pool.trim(rung=rung)
        assert (went, went.rung) == (0, None)
        pool.free(ptr)
        assert pool.trim(rung=rung) == 0


@pytest.mark.parametrize("shape", [ProxyPool, SlabPool])
def test_what_the_provider_keeps_goes_with_the_last_rung(shape: type[Slabs]) -> None:
    """It is none of the pool's bytes, but the device has it back."""
    provider = LadderedProvider(CAPABILITIES | Capability.RESERVE)
    provider.kept = 1 << 20
    with shape(provider) as pool:
        assert pool.trim(rung="decommit").rung is None
        assert provider.kept == 1 << 20
        went = pool.trim()
        assert (went, went.rung) == (0, "free")
        assert provider.kept == 0
        assert pool.trim().rung is None
