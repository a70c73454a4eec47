"""The reference's tests, by their numbers in the specification."""

from __future__ import annotations

import pytest

from tests.manager.conftest import Make
from tests.manager.support import KIB, MIB, PROPERTIES, exclusive, layout, sliced
from umfpy import CapacityExceeded, Handle, MemoryConfiguration, StaleHandle
from umfpy.manager import (
    CapSmallerThanPage,
    EmptyPoolList,
    ExclusiveOptions,
    PoolsUnavailable,
    SlicedOptions,
    SliceLargerThanPage,
    TooManyPages,
    TooManyPools,
    ZeroSize,
    resolve,
)

#: 1, 12, 13, 14, 15 and 16 hold without slices too: these are 25 to 30.
PRESETS = {"01": "sub_slices", "25": "exclusive_pages"}


@pytest.mark.parametrize("number", PRESETS)
def test_01_25_one_user_may_change_memory_in_place(make: Make, number: str) -> None:
    handle = make(PRESETS[number]).reserve(10)
    other = handle.clone()
    assert not handle.can_mut()
    del other
    assert handle.can_mut()


def test_02_usage_of_one_slice_comes_again(make: Make) -> None:
    manager = make(layout(exclusive(512)))
    handle = manager.reserve(100)
    usage = manager.memory_usage()
    assert usage.bytes_in_use == 100
    assert 100 <= usage.bytes_reserved <= 512

    handle.release()
    handle = manager.reserve(100)
    assert manager.memory_usage() == usage


def test_03_a_fresh_handle_is_not_found(make: Make) -> None:
    manager = make(layout(sliced(2048)))
    live = manager.reserve(512)
    with pytest.raises(StaleHandle, match="no memory yet"):
        manager.cursor(Handle())
    assert manager.cursor(live) == 0


def test_04_binding_moves_the_identity(make: Make) -> None:
    manager = make(layout(sliced(2048)))
    reserved = manager.reserve(512)
    clone, assigned = reserved.clone(), Handle()
    where = manager.storage(reserved)

    manager.bind(reserved, assigned, 7)
    for stale in (reserved, clone):
        with pytest.raises(StaleHandle, match="bound to another"):
            manager.cursor(stale)
    assert manager.cursor(assigned) == 7
    assert manager.storage(assigned) == where


def test_05_a_binding_keeps_its_page(make: Make) -> None:
    manager = make(layout(exclusive(1024)))
    first, middle, last = (manager.reserve(1024) for _ in range(3))
    binding = middle.binding()
    where = manager.storage(binding)
    del first, last

    manager.cleanup(True)
    assert manager.cursor(binding) == 0
    assert manager.storage(binding) == where
    assert manager.memory_usage().bytes_reserved == 1024


def test_06_the_cap_is_kept(make: Make) -> None:
    manager = make(layout(sliced(1024, 2048)))
    held = [manager.reserve(1024) for _ in range(2)]
    with pytest.raises(CapacityExceeded) as caught:
        manager.reserve(1024)
    assert (caught.value.capacity, caught.value.size, caught.value.in_use) == (2048, 1024, 2048)
    assert manager.memory_usage().bytes_reserved == 2048
    assert len(held) == 2


def test_07_a_freed_slice_makes_room_under_the_cap(make: Make) -> None:
    manager = make(layout(sliced(1024, 2048)))
    held = [manager.reserve(1024) for _ in range(2)]
    held.pop().release()
    held.append(manager.reserve(1024))
    assert manager.memory_usage().bytes_reserved == 2048


def test_08_cleanup_makes_room_for_as_much_again(make: Make) -> None:
    manager = make(layout(sliced(1024, 2048)))
    held = [manager.reserve(1024) for _ in range(2)]
    held.clear()
    assert manager.cleanup(True) == 2048
    assert manager.memory_usage().bytes_reserved == 0

    held = [manager.reserve(1024) for _ in range(2)]
    with pytest.raises(CapacityExceeded):
        manager.reserve(1024)


def test_09_a_cap_below_a_page_shrinks_the_page(make: Make) -> None:
    manager = make(layout(sliced(2048, 512)))
    fine = manager.reserve(256)
    assert manager.memory_usage().bytes_reserved <= 512
    with pytest.raises(CapacityExceeded):
        manager.reserve(1024)
    assert manager.memory_usage().bytes_reserved <= 512
    assert manager.storage(fine).size == 256


def test_10_a_cap_below_the_alignment_holds_nothing(make: Make) -> None:
    manager = make(layout(sliced(1024, 16)))
    with pytest.raises(CapacityExceeded) as caught:
        manager.reserve(8)
    assert caught.value.capacity == 0
    assert manager.memory_usage().bytes_reserved == 0


@pytest.mark.parametrize("spill", [False, True])
def test_11_no_falling_through_unless_asked_for(make: Make, spill: bool) -> None:
    manager = make(layout(sliced(1024, 1024), sliced(1024)), spill=spill)
    held = [manager.reserve(1024)]
    if spill:
        held.append(manager.reserve(1024))
        assert manager.memory_usage().bytes_reserved == 2048
    else:
        with pytest.raises(CapacityExceeded):
            manager.reserve(1024)
        assert manager.memory_usage().bytes_reserved == 1024


@pytest.mark.parametrize(
    ("entry", "reserved"), [(sliced(2048), 2048), (exclusive(1024), 1024)], ids=["12", "26"]
)
def test_12_26_two_slices(make: Make, entry: object, reserved: int) -> None:
    manager = make(layout(entry))
    held = [manager.reserve(512) for _ in range(2)]
    usage = manager.memory_usage()
    assert (usage.number_allocs, usage.bytes_in_use) == (2, 1024)
    assert usage.bytes_reserved == reserved
    assert len(held) == 2


@pytest.mark.parametrize("entry", [sliced(512), exclusive(1024)], ids=["13", "27"])
def test_13_27_memory_is_used_again(make: Make, entry: object) -> None:
    manager = make(layout(entry))
    manager.reserve(512).release()
    handle = manager.reserve(512)
    usage = manager.memory_usage()
    assert (usage.number_allocs, usage.bytes_in_use, usage.bytes_reserved) == (1, 512, 512)
    assert handle.can_mut()


@pytest.mark.parametrize(
    ("entry", "reserved"), [(sliced(1024), 2048), (exclusive(1024), 1536)], ids=["14", "28"]
)
def test_14_28_a_second_page_where_the_first_is_full(
    make: Make, entry: object, reserved: int
) -> None:
    manager = make(layout(entry))
    held = [manager.reserve(768) for _ in range(2)]
    usage = manager.memory_usage()
    assert (usage.number_allocs, usage.bytes_in_use) == (2, 1536)
    assert usage.bytes_reserved == reserved
    assert len(held) == 2


@pytest.mark.parametrize("entry", [sliced(500), exclusive(1000)], ids=["15", "29"])
def test_15_29_padding_up_to_an_alignment_of_any_kind(make: Make, entry: object) -> None:
    manager = make(layout(entry), properties={"max_page_size": 500, "alignment": 50})
    held = [manager.reserve(40) for _ in range(2)]
    assert manager.memory_usage().bytes_padding == 20
    assert all(manager.storage(handle).offset % 50 == 0 for handle in held)


@pytest.mark.parametrize("kind", [sliced, exclusive], ids=["16", "30"])
def test_16_30_each_size_in_the_first_pool_that_takes_it(make: Make, kind: object) -> None:
    entries = [kind(size) for size in (100, 200, 300, 400)]
    manager = make(layout(*entries), properties={"max_page_size": 128 * MIB, "alignment": 10})
    held = [manager.reserve(size) for size in (50, 150, 250, 350)]
    usage = manager.memory_usage()
    assert usage.bytes_in_use == 800
    assert usage.bytes_reserved >= (1000 if kind is sliced else 800)
    assert [pool.usage.number_allocs for pool in manager.pool_usage()] == [0, 1, 1, 1, 1]
    assert len(held) == 4


def test_17_without_a_layout_the_default_stays() -> None:
    for preset in ("sub_slices", "exclusive_pages"):
        expected = MemoryConfiguration.of(preset).resolve(PROPERTIES)
        assert resolve(None, preset, PROPERTIES) == expected


def test_18_a_preset_takes_the_place_of_the_default() -> None:
    expected = MemoryConfiguration.exclusive_pages().resolve(PROPERTIES)
    assert resolve("exclusive_pages", "sub_slices", PROPERTIES) == expected


@pytest.mark.parametrize("chosen", ["sub_slices", layout(exclusive(8), sliced(1024))])
def test_19_sliced_pools_are_refused_where_there_are_none(chosen: object) -> None:
    with pytest.raises(PoolsUnavailable, match="unavailable") as caught:
        resolve(chosen, "exclusive_pages", PROPERTIES, exclusive_only=True)
    assert caught.value.which in ("sub_slices", "sliced")
    assert resolve("exclusive_pages", "sub_slices", PROPERTIES, exclusive_only=True)


def test_20_an_explicit_list_is_aligned() -> None:
    chosen = MemoryConfiguration.explicit(
        [
            {"type": "exclusive", "max_alloc_size": 8192, "dealloc_period": 10000},
            {"type": "sliced", "page_size": 1000, "max_pool_size": 4096},
        ]
    )
    assert chosen.resolve(PROPERTIES) == (
        ExclusiveOptions(8192, 10000),
        SlicedOptions(page_size=1024, max_slice_size=1024, max_pool_size=4096),
    )


def test_21_every_mistake_with_its_numbers() -> None:
    with pytest.raises(EmptyPoolList, match="the pool list is empty"):
        layout().resolve(PROPERTIES)
    with pytest.raises(TooManyPools, match="254 is the most") as many:
        layout(*[exclusive(8)] * 255).resolve(PROPERTIES)
    assert many.value.count == 255
    for field in ("page_size", "max_slice_size", "max_pool_size"):
        with pytest.raises(ZeroSize, match=f"{field} = 0"):
            layout({**sliced(1024), field: 0}).resolve(PROPERTIES)
    with pytest.raises(SliceLargerThanPage, match="can never span") as larger:
        layout(sliced(1000, max_slice_size=1025)).resolve(PROPERTIES)
    assert (larger.value.max_slice_size, larger.value.page_size) == (1056, 1024)
    with pytest.raises(CapSmallerThanPage) as smaller:
        layout(sliced(1000, 1023)).resolve(PROPERTIES)
    assert (smaller.value.max_pool_size, smaller.value.page_size) == (1023, 1024)
    with pytest.raises(TooManyPages, match="raise page_size or lower the cap") as pages:
        layout(sliced(1024, 64 << 30)).resolve(PROPERTIES)
    assert (pages.value.pages, pages.value.limit) == (67_108_864, 65_535)


def test_22_a_page_serves_larger_requests_later(make: Make) -> None:
    manager = make(layout(sliced(MIB)))
    manager.reserve(4 * KIB).release()
    handle = manager.reserve(512 * KIB)
    usage = manager.memory_usage()
    assert (usage.number_allocs, usage.bytes_reserved) == (1, MIB)
    assert handle.can_mut()


@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"], ids=["23", "37"])
def test_23_37_the_same_again_needs_no_more(make: Make, preset: str) -> None:
    manager = make(preset)
    sizes = range(1000, 6000, 1000)
    held = [manager.reserve(size) for size in sizes]
    first = manager.memory_usage()
    held.clear()
    held = [manager.reserve(size) for size in sizes]
    again = manager.memory_usage()
    assert (again.number_allocs, again.bytes_in_use) == (first.number_allocs, first.bytes_in_use)
    assert again.bytes_reserved == first.bytes_reserved


def test_24_holes_are_filled(make: Make) -> None:
    manager = make("sub_slices")
    sizes = (50, 1000, 100, 5000, 200, 10000, 300)
    held = [manager.reserve(size) for size in sizes]
    before = manager.memory_usage().bytes_reserved
    held = held[1::2]
    held += [manager.reserve(size) for size in (70, 150, 250)]
    assert manager.memory_usage().bytes_reserved <= 1.1 * before


def test_31_a_second_capture_uses_the_memory_of_the_first(make: Make) -> None:
    manager = make("exclusive_pages")
    with manager.capturing_memory() as pins:
        manager.reserve(1024).release()
    page = manager.storage(pins.pop()).ptr

    with manager.capturing_memory() as pins:
        manager.reserve(1024).release()
    (pin,) = pins
    assert manager.storage(pin).ptr == page
    before = manager.memory_usage().bytes_reserved
    normal = manager.reserve(1024)
    assert manager.memory_usage().bytes_reserved > before, "pinned memory is nobody else's"
    assert manager.storage(normal).ptr != page


def test_32_a_slice_that_comes_back_in_the_capture_is_pinned(make: Make) -> None:
    manager = make("exclusive_pages")
    live = manager.reserve(1024)
    manager.capture_begin()
    live.release()
    manager.reserve(1024).release()
    assert len(manager.capture_end()) == 1


def test_32_the_same_where_it_was_persistent_before(make: Make) -> None:
    manager = make("exclusive_pages", persistent="enforced")
    live = manager.reserve(1024)
    page = manager.storage(live).ptr
    manager.capture_begin()
    live.release()
    manager.reserve(1024).release()
    (pin,) = manager.capture_end()
    assert manager.storage(pin).ptr == page


def test_33_what_the_capture_did_not_use_is_not_pinned(make: Make) -> None:
    manager = make("exclusive_pages")
    with manager.capturing_memory() as pins:
        manager.reserve(1024).release()
    pins.clear()  # leaves an idle slice of 1024
    manager.capture_begin()
    manager.reserve(2048).release()
    (pin,) = manager.capture_end()
    assert manager.storage(pin).size == 2048


def test_34_cleanup_in_the_capture_takes_nothing_away(make: Make) -> None:
    manager = make("exclusive_pages")
    manager.capture_begin()
    manager.reserve(1024).release()
    assert manager.cleanup(True) == 0
    assert len(manager.capture_end()) == 1


def test_35_beginning_twice_is_one_capture(make: Make) -> None:
    manager = make("exclusive_pages")
    manager.capture_begin()
    held = [manager.reserve(1024)]
    manager.capture_begin()
    held.append(manager.reserve(2048))
    assert len(manager.capture_end()) == 2
    assert manager.capture_end() == []
    assert manager.mode() == "auto"


def test_36_what_lives_across_the_capture_stays_its_users(make: Make) -> None:
    manager = make("exclusive_pages")
    held = manager.reserve(1024)
    manager.capture_begin()
    manager.reserve(2048).release()
    pins = manager.capture_end()
    assert len(pins) == 1
    assert held.can_mut()
