"""Each invariant's check catches a fault that is planted in the structure itself."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.provider import FakeProvider
from tests.fakes.structs import Structures
from umfpy import InvalidArgument
from umfpy.core.extents import COMING, HIDDEN, SAFE, UNBACKED, ExtentMap

KIB = 1 << 10
EXTENT = 16 << 20


@pytest.fixture
def space() -> Iterator[ExtentMap]:
    """Used, free, used, free in one extent; one wholly free; one hidden, free, unbacked."""
    provider = FakeProvider()
    made = ExtentMap(512, provider, ordered=True)
    for _ in range(2):
        made.add(provider.alloc(EXTENT), EXTENT, provider)
    starts = [made.allocate(size) for size in (1000, 3000, 5000)]
    made.free(starts[1])
    apart = made.add(provider.alloc(EXTENT), EXTENT, provider, backed=False)
    assert made.retag(apart.base, 4096, UNBACKED, SAFE)
    assert made.retag(apart.base, 2048, SAFE, HIDDEN)
    made.describe(starts[0])
    made.check("full")
    yield made
    made.check("full")


class Faults:
    """One method a fault; the words are what the check must say."""

    def __init__(self, structures: Structures) -> None:
        self.s = structures
        used = [e for e in (1, 2) if len(structures.blocks_of(e)) > 1]
        (self.busy,) = used
        self.idle = 3 - self.busy
        self.hidden, _, self.unbacked = structures.blocks_of(3)
        self.first, self.hole, self.second, self.tail = structures.blocks_of(self.busy)

    def _counter(self, name: str, value: int) -> None:
        self.s.poke(self.s.map.counters, name, value)

    def _block(self, block: int, name: str, change: Callable[[int], int]) -> None:
        target = self.s.block(block)
        self.s.poke(target, name, change(getattr(target, name)))

    def requested_beyond_used(self) -> None:
        self._counter("requested", self.s.map.counters.used + 1)

    def used_beyond_reserved(self) -> None:
        self._counter("used", self.s.map.counters.reserved + 1)

    def more_frees_than_allocations(self) -> None:
        self._counter("frees", 100)

    def a_peak_too_low(self) -> None:
        self._counter("peak_used", 0)

    def hidden_beyond_free(self) -> None:
        self._counter("hidden", self.s.map.counters.reserved - self.s.map.counters.used + 1)

    def wrong_used(self) -> None:
        self._counter("used", self.s.map.counters.used + 512)

    def wrong_requested(self) -> None:
        self._counter("requested", self.s.map.counters.requested - 1)

    def wrong_reserved(self) -> None:
        self._counter("reserved", self.s.map.counters.reserved - 512)

    def wrong_unbacked(self) -> None:
        self._counter("unbacked", self.s.map.counters.unbacked + 512)

    def wrong_hidden(self) -> None:
        self._counter("hidden", self.s.map.counters.hidden - 512)

    def a_state_nobody_counted(self) -> None:
        self._block(self.unbacked, "home", lambda home: home & ~0xFFF | HIDDEN)

    def a_state_without_a_shelf(self) -> None:
        self._block(self.unbacked, "home", lambda home: home & ~0xFFF | COMING)

    def wrong_number_of_allocations(self) -> None:
        self._counter("allocations", 4)

    def wrong_index_count(self) -> None:
        self.s.poke(self.s.map, "indexed", self.s.map.indexed + 1)

    def a_lost_entry(self) -> None:
        self.s.poke(self.s.map, "blocks_used", self.s.map.blocks_used + 1)

    def a_first_block_elsewhere(self) -> None:
        self._block(self.first, "start", lambda start: start + 512)

    def a_block_of_another_extent(self) -> None:
        self._block(self.second, "home", lambda home: home + (1 << 12))

    def a_neighbour_that_does_not_know(self) -> None:
        self._block(self.second, "prev", lambda _: self.first)

    def blocks_that_descend(self) -> None:
        self._block(self.second, "start", lambda _: self.s.block(self.hole).start)

    def an_end_elsewhere(self) -> None:
        self._block(self.s.extent(self.busy).sentinel, "start", lambda start: start + 512)

    def a_free_sentinel(self) -> None:
        self._block(self.s.extent(self.busy).sentinel, "generation", lambda g: g + 1)

    def more_slack_than_span(self) -> None:
        self._block(self.first, "slack", lambda _: 5000)

    def a_block_missing_from_the_index(self) -> None:
        self._block(self.second, "chain", lambda _: 0xFFFFFFFF)

    def a_block_hidden_from_the_index(self) -> None:
        words = 1 << (64 - self.s.map.hash_shift)
        heads = (ctypes.c_uint32 * words).from_address(self.s.map.hash)
        slot = next(i for i in range(words) if heads[i] == self.first)
        self.s.poke(heads, slot, 0)

    def a_frontier_outside(self) -> None:
        extent = self.s.extent(self.busy)
        self.s.poke(extent, "fresh", extent.base + extent.size + 512)

    def a_frontier_below_what_is_used(self) -> None:
        self.s.poke(self.s.extent(self.busy), "fresh", self.s.block(self.second).start)

    def two_free_neighbours(self) -> None:
        self._block(self.second, "generation", lambda g: g + 1)
        self._block(self.second, "home", lambda _: self.s.block(self.tail).home)

    def an_empty_bin_that_is_not(self) -> None:
        self._block(self.hole, "home", lambda home: home | 1)

    def a_bit_without_a_bin(self) -> None:
        self.s.poke(self.s.bins(0).second_map, 40, 1)

    def a_row_without_a_bin(self) -> None:
        bins = self.s.bins(0)
        self.s.poke(bins, "first_map", bins.first_map | 1 << 50)

    def a_list_linked_one_way(self) -> None:
        self._block(self.hole, "slack", lambda _: self.tail)

    def a_region_that_names_another(self) -> None:
        last = (ctypes.c_uint32 * 1).from_address(self.s.regions(self.busy).last)
        self.s.poke(last, 0, self.first)

    def a_region_bit_that_lies(self) -> None:
        bits = (ctypes.c_uint64 * 1).from_address(self.s.regions(self.busy).bits[0])
        self.s.poke(bits, 0, bits[0] | 2)

    def a_summary_that_lies(self) -> None:
        bits = (ctypes.c_uint64 * 1).from_address(self.s.regions(self.busy).bits[1])
        self.s.poke(bits, 0, bits[0] | 2)

    def a_free_extent_not_marked(self) -> None:
        self.s.poke(self.s.extent(self.idle), "wholly_free", 0)

    def a_free_extent_not_listed(self) -> None:
        self.s.poke(self.s.map, "extents_free", 0)

    def a_used_extent_listed(self) -> None:
        self.s.poke(self.s.map, "extents_free", self.busy)


WORDS = {
    "requested_beyond_used": "requested <= used",
    "used_beyond_reserved": "used <= reserved",
    "more_frees_than_allocations": "frees <= allocations",
    "a_peak_too_low": "peak is the highest",
    "wrong_used": "used bytes equal the sums",
    "wrong_requested": "used bytes equal the sums",
    "wrong_reserved": "reserved bytes equals the sum",
    "hidden_beyond_free": "hidden <= reserved - used",
    "wrong_unbacked": "unbacked bytes equals the sum",
    "wrong_hidden": "hidden bytes equals the sum",
    "a_state_nobody_counted": "stands in the bin of its size and tag",
    "a_state_without_a_shelf": "stands in the bin of its size and tag",
    "wrong_number_of_allocations": "less frees are the used blocks",
    "wrong_index_count": "index holds every indexed block",
    "a_lost_entry": "every entry is a block",
    "a_first_block_elsewhere": "first block starts at",
    "a_block_of_another_extent": "knows its extent",
    "a_neighbour_that_does_not_know": "neighbours know each other",
    "blocks_that_descend": "blocks ascend",
    "an_end_elsewhere": "sentinel stands at",
    "a_free_sentinel": "sentinel is never free|no two free neighbours",
    "more_slack_than_span": "slack <= span",
    "a_block_missing_from_the_index": "owned block is not found",
    "a_block_hidden_from_the_index": "found by its start",
    "a_frontier_outside": "frontier of an extent lies in it",
    "a_frontier_below_what_is_used": "beyond the frontier",
    "two_free_neighbours": "no two free neighbours",
    "an_empty_bin_that_is_not": "stands in the bin of its size",
    "a_bit_without_a_bin": "bin's bit is set exactly|row's bit is set exactly",
    "a_row_without_a_bin": "row's bit is set exactly",
    "a_list_linked_one_way": "linked both ways",
    "a_region_that_names_another": "last used block that starts in it|from each of its addresses",
    "a_region_bit_that_lies": "region's bit is set exactly",
    "a_summary_that_lies": "summary bit is set exactly",
    "a_free_extent_not_marked": "marked wholly free exactly",
    "a_free_extent_not_listed": "holds them all",
    "a_used_extent_listed": "holds only those",
}
FAULTS = [name for name in vars(Faults) if not name.startswith("_")]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found(space: ExtentMap, fault: str) -> None:
    # given
    structures = Structures(space)
    faults = Faults(structures)

    # when
    getattr(faults, fault)()

    # then
    try:
        with pytest.raises(AssertionError, match=WORDS[fault]):
            space.check("full")
        space.check("off")
    finally:
        structures.restore()


@pytest.mark.parametrize("fault", FAULTS[:5])
def test_the_cheap_check_finds_counters_that_contradict_each_other(
    space: ExtentMap, fault: str
) -> None:
    structures = Structures(space)
    getattr(Faults(structures), fault)()
    try:
        with pytest.raises(AssertionError, match=WORDS[fault]):
            space.check("cheap")
    finally:
        structures.restore()


def test_levels_that_are_none(space: ExtentMap) -> None:
    with pytest.raises(InvalidArgument, match="level"):
        space.check("thorough")
