"""The numbered behaviours 1 to 19 of the coarse library of UMF, for every strategy.

umfpy differs on purpose in two: a split or merge is logical, so that upstream is never asked and
cannot refuse it (13, 14); and what comes from upstream is kept whole, so that closing frees each
upstream allocation in one piece.
"""

from __future__ import annotations

import gc

import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.pictures import picture
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import AlignmentError, CoarseProvider, InvalidArgument, OutOfMemoryError
from umfpy.providers.host import FixedProvider

MIB = 1 << 20
STRATEGIES = ["fastest", "fastest_but_one", "check_all_size"]


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def coarse(strategy: str):
    """20 MiB, all free; checked at the end."""
    made = CoarseProvider(FakeProvider(), strategy=strategy, reserve=20 * MIB)
    yield made
    made.check("full")


def blocks(coarse: CoarseProvider) -> int:
    return len(coarse.map.blocks())


def refused(coarse: CoarseProvider, call, *arguments) -> None:
    """The call is refused, and nothing has changed."""
    before = picture(coarse)
    with pytest.raises(InvalidArgument):
        call(*arguments)
    assert picture(coarse) == before
    coarse.check("full")


def test_umf_01_bad_parameters_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="strategy"):
        CoarseProvider(FakeProvider(), strategy="slowest")
    with pytest.raises(InvalidArgument):
        CoarseProvider("no provider")
    with pytest.raises(InvalidArgument):
        CoarseProvider(FakeProvider(), reserve=-1)


def test_umf_02_a_reserve_is_one_free_block(coarse: CoarseProvider) -> None:
    stats = coarse.stats()
    assert (stats["used"], stats["reserved"], blocks(coarse)) == (0, 20 * MIB, 1)


def test_umf_03_allocating_makes_two_blocks_and_freeing_one(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    assert blocks(coarse) == 2

    coarse.free(ptr, 2 * MIB)
    assert blocks(coarse) == 1
    assert coarse.upstream.counts["alloc"] == 1


def test_umf_04_a_double_free_is_refused(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    coarse.free(ptr, 2 * MIB)

    refused(coarse, coarse.free, ptr, 2 * MIB)


def test_umf_05_none_is_fine_and_foreign_pointers_are_refused(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    coarse.free(None)
    coarse.free(0)

    for foreign in (1, ptr + 1, ptr + 512, ptr - 512, ptr + 2 * MIB, 1 << 62, (1 << 64) - 1):
        refused(coarse, coarse.free, foreign)
    for size in (0, 1, 2 * MIB - 1, 2 * MIB + 1, (1 << 64) - 1):
        refused(coarse, coarse.free, ptr, size)


@pytest.mark.parametrize("alignment", [3, 513, (1 << 20) + 1])
def test_umf_06_an_alignment_that_is_no_power_of_two(
    coarse: CoarseProvider, alignment: int
) -> None:
    before = coarse.stats()
    with pytest.raises(AlignmentError):
        coarse.alloc(4096, alignment)
    assert coarse.stats() == before


def test_umf_07_closing_with_a_live_block_says_so(coarse: CoarseProvider) -> None:
    coarse.alloc(2 * MIB)

    with pytest.warns(ResourceWarning, match="1 live"):
        coarse.close()
    with pytest.raises(InvalidArgument, match="closed"):
        coarse.alloc(1)
    coarse.close()


def test_umf_08_split_and_free_both(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    coarse.split(ptr, 2 * MIB, MIB)
    coarse.free(ptr, MIB)
    coarse.free(ptr + MIB, MIB)

    assert blocks(coarse) == 1
    assert coarse.upstream.counts["split"] == 0


def test_umf_09_split_merge_and_free_whole(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    coarse.split(ptr, 2 * MIB, MIB)
    coarse.merge(ptr, ptr + MIB, 2 * MIB)
    coarse.free(ptr, 2 * MIB)

    assert blocks(coarse) == 1
    assert coarse.stats()["requested"] == 0


def test_umf_10_splits_that_make_no_sense(coarse: CoarseProvider) -> None:
    ptr = coarse.alloc(2 * MIB)
    gone = coarse.alloc(2 * MIB)
    coarse.free(gone)

    for first in (0, 2 * MIB, 3 * MIB, 513):
        refused(coarse, coarse.split, ptr, 2 * MIB, first)
    refused(coarse, coarse.split, ptr, MIB, 512)
    refused(coarse, coarse.split, ptr + 512, 2 * MIB, MIB)
    refused(coarse, coarse.split, gone, 2 * MIB, MIB)


def test_umf_11_merges_that_make_no_sense(coarse: CoarseProvider) -> None:
    first, second, third = (coarse.alloc(2 * MIB) for _ in range(3))

    refused(coarse, coarse.merge, second, first, 4 * MIB)
    refused(coarse, coarse.merge, first, second, 4 * MIB - 512)
    refused(coarse, coarse.merge, first, third, 4 * MIB)
    refused(coarse, coarse.merge, first, first, 4 * MIB)
    coarse.free(second)
    refused(coarse, coarse.merge, first, second, 4 * MIB)


def test_umf_12_upstream_without_memory(strategy: str) -> None:
    coarse = CoarseProvider(FakeProvider(capacity=0), strategy=strategy)

    with pytest.raises(OutOfMemoryError):
        coarse.alloc(2 * MIB)
    assert (coarse.stats()["used"], coarse.stats()["reserved"]) == (0, 0)


def test_umf_13_upstream_that_cannot_split_is_never_asked(coarse: CoarseProvider) -> None:
    coarse.upstream.fail(1)  # whatever it is asked

    first = coarse.alloc(2 * MIB)
    exact = coarse.alloc(18 * MIB)

    assert coarse.stats()["used"] == 20 * MIB
    coarse.free(first)
    coarse.free(exact)
    coarse.upstream.recover()


def test_umf_14_upstream_that_cannot_merge_is_never_asked(coarse: CoarseProvider) -> None:
    pieces = [coarse.alloc(2 * MIB) for _ in range(10)]
    coarse.upstream.fail(1)

    for piece in pieces:
        coarse.free(piece)

    assert blocks(coarse) == 1
    with pytest.raises(FakeFailure):
        coarse.trim()
    assert blocks(coarse) == 1
    assert coarse.trim() == 20 * MIB


def test_umf_15_a_fixed_buffer_runs_out_cleanly(strategy: str) -> None:
    coarse = CoarseProvider(FixedProvider(bytearray(64 << 10)), strategy=strategy)
    taken, _ = until_exhausted(lambda: coarse.alloc(4096))
    before = coarse.stats()
    with pytest.raises(OutOfMemoryError):
        coarse.alloc(4096)

    assert len(taken) >= 15
    assert coarse.stats() == before
    for ptr in taken:
        coarse.free(ptr, 4096)
    coarse.check("full")
    coarse.close()
    assert coarse.stats()["reserved"] == 0


def test_umf_16_ten_pieces_fill_it_exactly(coarse: CoarseProvider) -> None:
    pieces = [coarse.alloc(2 * MIB) for _ in range(10)]
    assert coarse.stats()["used"] == coarse.stats()["reserved"] == 20 * MIB

    for piece in pieces:
        coarse.free(piece, 2 * MIB)
    assert blocks(coarse) == 1


def test_umf_17_small_pieces_come_out_of_large_freed_ones(coarse: CoarseProvider) -> None:
    for _ in range(5):
        large = [coarse.alloc(4 * MIB) for _ in range(5)]
        for piece in large:
            coarse.free(piece)
        small = [coarse.alloc(64 << 10) for _ in range(320)]
        for piece in small:
            coarse.free(piece)

    assert coarse.stats()["reserved"] == 20 * MIB
    assert coarse.upstream.counts["alloc"] == 1


def test_umf_18_gaps_and_large_alignments_merge_in_the_end(coarse: CoarseProvider) -> None:
    pieces = [coarse.alloc(MIB) for _ in range(20)]
    for piece in pieces[::2]:
        coarse.free(piece)
    aligned = [coarse.alloc(MIB // 2, 2 * MIB) for _ in range(8)]

    assert all(ptr % (2 * MIB) == 0 for ptr in aligned)
    for piece in pieces[1::2] + aligned:
        coarse.free(piece)
    coarse.trim()
    assert all(not used for _, _, used, _ in coarse.map.blocks())
    assert blocks(coarse) == len(coarse.map.extents)


@pytest.mark.parametrize("offset", [1, 63, 511])
def test_umf_19_a_misaligned_fixed_buffer(strategy: str, offset: int) -> None:
    buffer = bytearray(64 << 10)
    view = memoryview(buffer)[offset:]
    coarse = CoarseProvider(FixedProvider(view), strategy=strategy)

    ptr = coarse.alloc(4096)
    assert ptr % coarse.granule == 0
    coarse.free(ptr)
    coarse.check("full")
    coarse.close()


@pytest.mark.parametrize("offset", [1, 17, 511])
def test_umf_19_memory_whose_ends_fill_no_granule(strategy: str, offset: int) -> None:
    provider = FakeProvider(offset=offset)
    coarse = CoarseProvider(provider, strategy=strategy, reserve=64 << 10)

    taken = coarse.alloc((64 << 10) - 512)
    assert taken % 512 == 0
    coarse.free(taken)
    coarse.close()
    assert not provider.live


def test_pieces_of_different_providers_never_share_an_id() -> None:
    from umfpy import find

    first, second = CoarseProvider(FakeProvider()), CoarseProvider(FakeProvider())
    assert find(first.alloc(5)).id != find(second.alloc(5)).id
    gc.collect()


def test_dropped_it_gives_back_what_it_holds() -> None:
    provider = FakeProvider()
    coarse = CoarseProvider(provider)
    coarse.free(coarse.alloc(4096), 4096)
    assert provider.live

    del coarse
    gc.collect()
    assert not provider.live


def test_dropped_with_a_live_piece_it_keeps_what_holds_it() -> None:
    provider = FakeProvider()
    coarse = CoarseProvider(provider, reserve=MIB)
    coarse.alloc(4096)
    coarse.alloc(2 * MIB)
    coarse.free(coarse.alloc(8 * MIB), 8 * MIB)

    del coarse
    gc.collect()
    assert 0 < provider.live_bytes <= 3 * MIB


def test_dropped_while_upstream_refuses_it_warns() -> None:
    provider = FakeProvider()
    held = [CoarseProvider(provider, reserve=MIB)]
    provider.fail(1, OutOfMemoryError("as told"))
    with pytest.warns(ResourceWarning, match="could not give its memory back: as told"):
        held.clear()
