"""Memory that comes as zeros is not cleared again; what somebody may have used always is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import pytest

from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import Capability, Growth, MemoryManager, Pool, ProxyPool, SlabPool
from umfpy.core.extents import COMING, SAFE, UNBACKED
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
EXTENT = 64 * KIB
GROWTH = Growth(EXTENT, EXTENT)


def provider_of(*, fresh: bool = True, streams: bool = False) -> FakeProvider:
    capabilities = Capability.ZERO
    if fresh:
        capabilities |= Capability.FRESH_ZERO
    if streams:
        capabilities |= Capability.STREAMS
    return FakeProvider(capabilities=capabilities)


def cleared(provider: FakeProvider) -> list[tuple[object, object]]:
    """(address, bytes) of each call of `zero`."""
    return [(call[1], call[2]) for call in provider.calls if call[0] == "zero"]


@pytest.fixture
def provider() -> FakeProvider:
    return provider_of()


P = TypeVar("P", bound=ProviderPool)
Keep = Callable[[P], P]


@pytest.fixture
def keep() -> Iterator[Callable[[ProviderPool], ProviderPool]]:
    """Free at the end what a pool that was noted still holds, the newest pool first."""
    noted: list[ProviderPool] = []

    def note(pool: ProviderPool) -> ProviderPool:
        noted.append(pool)
        return pool

    yield note
    for pool in reversed(noted):
        for start, _, used, _ in pool.map.blocks():
            if used:
                pool.free(start)
        pool.check("full")
        pool.close()


@pytest.fixture
def pool(provider: FakeProvider, keep: Keep) -> Pool:
    return keep(Pool(provider, growth=GROWTH))


def test_fresh_memory_is_not_cleared(pool: Pool, provider: FakeProvider) -> None:
    pool.malloc(4 * KIB, zero=True)
    pool.malloc(1, zero=True)
    held = pool.allocate(5 * KIB, zero=True)
    assert not held.freed
    assert cleared(provider) == []


def test_memory_that_comes_with_anything_in_it_is_cleared(keep: Keep) -> None:
    provider = provider_of(fresh=False)
    pool = keep(Pool(provider, growth=GROWTH))
    first, second = pool.malloc(4 * KIB, zero=True), pool.malloc(1000, zero=True)
    assert cleared(provider) == [(first, 4 * KIB), (second, 1000)]


def test_a_pool_that_always_gives_zeros_clears_what_was_used(
    provider: FakeProvider, keep: Keep
) -> None:
    # given
    pool = keep(Pool(provider, zero=True, growth=GROWTH))
    first = pool.malloc(4 * KIB)
    assert cleared(provider) == []

    # when
    pool.free(first)
    again = pool.malloc(4 * KIB)

    # then
    assert again == first
    assert cleared(provider) == [(first, 4 * KIB)]


@pytest.mark.parametrize("between", [False, True], ids=["pending", "merged"])
def test_used_memory_is_cleared(pool: Pool, provider: FakeProvider, between: bool) -> None:
    # given
    first = pool.malloc(3000)
    pool.free(first)
    if between:
        pool.trim(EXTENT)  # merges the block that was freed last

    # when
    again = pool.malloc(3000, zero=True)

    # then
    assert again == first
    assert cleared(provider) == [(first, 3000)]


def test_zeros_that_were_given_once_are_used_afterwards(pool: Pool, provider: FakeProvider) -> None:
    first = pool.malloc(3000, zero=True)
    pool.free(first)
    assert pool.malloc(3000, zero=True) == first
    assert cleared(provider) == [(first, 3000)]


def test_only_the_part_that_was_used_is_cleared(pool: Pool, provider: FakeProvider) -> None:
    # given: 4 KiB used once, and fresh memory behind
    first = pool.malloc(4 * KIB)
    pool.free(first)

    # when
    again = pool.malloc(16 * KIB, zero=True)

    # then
    assert again == first
    assert cleared(provider) == [(first, 4 * KIB)]


def test_the_part_that_was_used_ends_with_the_request(pool: Pool, provider: FakeProvider) -> None:
    first = pool.malloc(512)
    pool.free(first)
    assert pool.malloc(700, zero=True) == first
    assert cleared(provider) == [(first, 512)]


def test_a_gap_for_an_alignment_counts_as_used(pool: Pool, provider: FakeProvider) -> None:
    # given: a hole of fresh memory below an aligned block
    first = pool.malloc(512)
    far = pool.malloc(512, alignment=16 * KIB)
    assert far > first + 512
    assert cleared(provider) == []

    # when
    hole = pool.malloc(512, zero=True)

    # then
    assert first < hole < far
    assert cleared(provider) == [(hole, 512)]


def test_every_extent_has_its_frontier(pool: Pool, provider: FakeProvider) -> None:
    # given
    first = pool.malloc(EXTENT)
    second = pool.malloc(EXTENT, zero=True)
    assert cleared(provider) == []

    # when: the first goes and comes again
    pool.free(first)
    pool.trim()
    third = pool.malloc(EXTENT, zero=True)

    # then
    assert {first, third} != {second}
    assert cleared(provider) == []


def test_an_extent_that_a_provider_did_not_take_back_is_not_fresh(
    pool: Pool, provider: FakeProvider
) -> None:
    # given
    first = pool.malloc(KIB)
    pool.free(first)
    provider.fail(1)
    with pytest.raises(FakeFailure):
        pool.trim()

    # when
    again = pool.malloc(2 * KIB, zero=True)

    # then
    assert cleared(provider) == [(again, 2 * KIB)]


def test_empty_requests_clear_nothing(pool: Pool, provider: FakeProvider) -> None:
    pool.free(pool.malloc(0))
    pool.malloc(0, zero=True)
    assert cleared(provider) == []


def test_the_stream_of_the_request_clears(keep: Keep) -> None:
    provider = provider_of(streams=True)
    pool = keep(Pool(provider, growth=GROWTH))
    first = pool.malloc(KIB, stream=3, zero=True)
    pool.free(first)
    pool.malloc(KIB, stream=3, zero=True)
    assert [call for call in provider.calls if call[0] == "zero"] == [("zero", first, KIB, 3)]


def test_a_call_that_fails_leaves_the_memory_used(pool: Pool, provider: FakeProvider) -> None:
    # given
    first = pool.malloc(KIB)
    pool.free(first)
    provider.fail(1)
    with pytest.raises(FakeFailure):
        pool.malloc(2 * KIB, zero=True)

    # when
    again = pool.malloc(2 * KIB, zero=True)

    # then: all of it was given out, though nobody got it
    assert again == first
    assert cleared(provider) == [(first, KIB), (first, 2 * KIB)]


# Other pools.


def test_a_direct_pool_clears_nothing(provider: FakeProvider) -> None:
    pool = ProxyPool(provider, zero=True)
    for _ in range(3):
        pool.free(pool.malloc(5000))
    with pool.allocate(5000):
        pass
    assert cleared(provider) == []


def test_a_direct_pool_over_any_memory_clears(keep: Keep) -> None:
    provider = provider_of(fresh=False)
    pool = keep(ProxyPool(provider))
    ptr = pool.malloc(5000, zero=True)
    assert cleared(provider) == [(ptr, 5000)]


def test_cells_are_cleared_from_their_second_use_on(provider: FakeProvider) -> None:
    # given
    pool = SlabPool(provider, zero=True)
    cells = [pool.malloc(1000) for _ in range(4)]
    held = pool.allocate(1000)
    large = pool.malloc(4 << 20)
    assert cleared(provider) == []

    # when
    for ptr in [*cells, large]:
        pool.free(ptr)
    held.free()
    again = pool.malloc(1000)

    # then
    assert cleared(provider) == [(again, 1000)]
    pool.free(again)


@pytest.mark.parametrize("layout", ["sub_slices", "exclusive_pages"])
def test_pages_of_a_manager_are_cleared_from_their_second_use_on(
    provider: FakeProvider, layout: str
) -> None:
    # given
    properties = {"max_page_size": "64MiB", "alignment": 512}
    with MemoryManager(provider, layout, properties, persistent="disabled") as manager:
        # when, then
        first = manager.malloc(1000, zero=True)
        assert cleared(provider) == []
        manager.free(first)
        assert manager.malloc(1000, zero=True) == first
        assert cleared(provider) == [(first, 1000)]
        manager.free(first)


@pytest.mark.parametrize("kind", [Pool, ProxyPool])
def test_a_pool_inside_a_pool_gets_used_memory(
    provider: FakeProvider, keep: Keep, kind: Callable[..., ProviderPool]
) -> None:
    # given
    parent = keep(Pool(provider, growth=GROWTH))
    parent.free(parent.malloc(32 * KIB))

    # when
    ptr = keep(kind(parent)).malloc(8 * KIB, zero=True)

    # then
    assert cleared(provider) == [(ptr, 8 * KIB)]


# States.


def test_memory_that_went_and_came_is_not_fresh(provider: FakeProvider, keep: Keep) -> None:
    """What is behind addresses again may be any memory."""
    # given
    pool = keep(Pool(provider, growth=GROWTH))
    first = pool.malloc(KIB)
    space = pool.map

    # when
    start = first + 16 * KIB
    assert space.retag(start, 4 * KIB, SAFE, UNBACKED)
    assert space.retag(start, 4 * KIB, UNBACKED, COMING)
    assert space.retag(start, 4 * KIB, COMING, SAFE)
    again = pool.malloc(EXTENT - KIB, zero=True)

    # then
    assert again == first + KIB
    assert cleared(provider) == [(again, start + 4 * KIB - again)]
    pool.check("full")


def test_addresses_without_memory_are_not_fresh(provider: FakeProvider, keep: Keep) -> None:
    # given
    pool = keep(Pool(provider))
    base = provider.alloc(EXTENT)
    pool.map.add(base, EXTENT, provider, backed=False, fresh=True)

    # when
    assert pool.map.retag(base, 8 * KIB, UNBACKED, SAFE)

    # then
    assert pool.malloc(8 * KIB, zero=True) == base
    assert cleared(provider) == [(base, 8 * KIB)]


def test_a_map_says_nothing_about_zeros_by_itself(provider: FakeProvider, keep: Keep) -> None:
    """Whoever adds memory knows where it has been."""
    # given
    pool = keep(Pool(provider))
    base = provider.alloc(EXTENT)
    pool.map.add(base, EXTENT, provider)

    # when, then
    assert pool.malloc(KIB, zero=True) == base
    assert cleared(provider) == [(base, KIB)]


def test_a_block_that_was_split_off_and_freed_is_used(pool: Pool, provider: FakeProvider) -> None:
    # given
    whole = pool.malloc(8 * KIB)
    pool.map.split(whole, 8 * KIB, 4 * KIB)
    pool.free(whole + 4 * KIB)

    # when, then
    assert pool.malloc(4 * KIB, zero=True) == whole + 4 * KIB
    assert cleared(provider) == [(whole + 4 * KIB, 4 * KIB)]
