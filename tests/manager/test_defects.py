"""What the reference does wrong, each by a test that it would fail."""

from __future__ import annotations

import pytest

from tests.manager.conftest import Make
from tests.manager.support import MIB, exclusive, layout, sliced


def test_a_padded_slice_is_used_again_at_once(make: Make) -> None:
    manager = make(layout(sliced(1024)))
    first, second = manager.reserve(40), manager.reserve(32)
    assert manager.storage(first).offset == 0
    first.release()
    assert manager.storage(manager.reserve(40)).offset == 0
    second.release()


@pytest.mark.parametrize("alignment", [32, 50])
def test_padding_is_never_lost(make: Make, alignment: int) -> None:
    manager = make(layout(sliced(3200)), properties={"max_page_size": 1, "alignment": alignment})
    for round_ in range(20):
        held = [manager.reserve(size) for size in (40, 33, 1, 70 + round_)]
        held.append(manager.reserve(alignment + 1))
        usage = manager.memory_usage()
        assert usage.bytes_padding == sum(-manager.storage(h).size % alignment for h in held)
        del held[round_ % 5]
        held.append(manager.reserve(5))  # splits what was padded
        held.clear()
        manager.check("full")
    assert manager.memory_usage().bytes_padding == 0
    assert manager.cleanup(True) == manager.memory_usage().peak_bytes_reserved, "the page goes"


def test_pages_with_padding_go_back(make: Make) -> None:
    manager = make(layout(sliced(256)))
    held = [manager.reserve(33) for _ in range(40)]
    assert manager.memory_usage().bytes_reserved == 10 * 256
    held = held[:1]
    assert manager.cleanup(True) == 9 * 256
    held.clear()
    assert manager.cleanup(True) == 256


def test_persistent_padding_is_right_after_reuse(make: Make) -> None:
    manager = make(layout(sliced(1024)), persistent="enforced")
    manager.reserve(33).release()
    handle = manager.reserve(64)
    usage = manager.memory_usage()
    assert (usage.bytes_in_use, usage.bytes_padding, usage.bytes_reserved) == (64, 0, 64)
    handle.release()
    handle = manager.reserve(33)
    usage = manager.memory_usage()
    assert (usage.bytes_in_use, usage.bytes_padding, usage.bytes_reserved) == (33, 31, 64)
    assert handle.can_mut()


@pytest.mark.parametrize("chosen", ["sub_slices", "exclusive_pages", layout(sliced(1024))])
def test_an_empty_slice_hinders_configure(make: Make, chosen: object) -> None:
    manager = make(chosen)
    empty = manager.reserve(0)
    assert not manager.configure(layout(exclusive(1024)))
    assert manager.storage(empty).size == 0, "it is still found"
    empty.release()
    assert manager.configure(layout(exclusive(1024)))
    assert [pool.kind for pool in manager.pool_usage()] == ["persistent", "exclusive"]


def test_empty_slices_are_distinct(make: Make) -> None:
    manager = make("sub_slices")
    held = [manager.reserve(0) for _ in range(10)]
    assert len({manager.storage(handle).ptr for handle in held}) == 10
    usage = manager.memory_usage()
    assert (usage.number_allocs, usage.bytes_in_use, usage.bytes_padding) == (10, 0, 0)


def test_configure_waits_for_the_end_of_a_capture(make: Make) -> None:
    manager = make(layout(sliced(1024)))
    with manager.capturing_memory() as pins:
        manager.reserve(100).release()
        assert not manager.configure("exclusive_pages")
    assert len(pins) == 1
    assert manager.configure("exclusive_pages"), "persistent slices do not hinder it"
    assert manager.storage(pins[0]).size == 100, "nor do they move"


def test_idle_pages_go_by_themselves(make: Make) -> None:
    manager = make(layout(exclusive(1024, dealloc_period=50), exclusive(MIB)))
    held = [manager.reserve(1024) for _ in range(8)]
    held.append(manager.reserve(2048))
    del held[1:8]
    # Every tenth request looks, wherever it goes; a new page goes when it is first found idle.
    assert manager.memory_usage().bytes_reserved == 8 * 1024 + 2048
    manager.reserve(2048).release()
    assert manager.memory_usage().bytes_reserved == 1024 + 2 * 2048
    assert len(held) == 2


def test_pages_that_were_used_again_stay_for_longer(make: Make) -> None:
    manager = make(layout(exclusive(1024, dealloc_period=50), exclusive(MIB)))
    other = manager.reserve(2048)
    for _ in range(4):
        manager.reserve(1024).release()  # a new page, used again three times
    looks = 0
    while manager.memory_usage().bytes_reserved > 2048:
        for _ in range(10):
            other.release()
            other = manager.reserve(2048)
        looks += 1
    assert looks == 4
    assert other.can_mut()


def test_sliced_pages_with_a_period_go_as_well(make: Make) -> None:
    manager = make(layout(sliced(1024, dealloc_period=50)))
    held = [manager.reserve(1024) for _ in range(8)]
    held = held[:1]
    for _ in range(60):
        manager.reserve(1024).release()
    assert manager.memory_usage().bytes_reserved == 2 * 1024
    assert len(held) == 1


def test_a_page_in_use_does_not_age(make: Make) -> None:
    manager = make(layout(exclusive(1024, dealloc_period=5)))
    hot = manager.reserve(1024)
    page = manager.storage(hot).ptr
    for _ in range(200):
        hot.release()
        hot = manager.reserve(1024)
        assert manager.storage(hot).ptr == page
