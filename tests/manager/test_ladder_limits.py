"""What sleeps takes no memory: limits, budgets, caps and ages, and what wakes under them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.laddered import LadderedProvider
from tests.manager.ladder import agree, pools_of
from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import Capability, MemoryManager, OutOfMemoryError
from umfpy.manager import Budget, PoolCapacityExceeded

PAGE = 32 * KIB


class Managers:
    """Managers of one provider that has every rung."""

    def __init__(self) -> None:
        self.provider = LadderedProvider(Capability.SPLIT | LADDER)
        self.made: list[MemoryManager] = []

    def __call__(self, *entries: object, **options: object) -> MemoryManager:
        properties = {"max_page_size": MIB, "alignment": 512}
        self.made.append(MemoryManager(self.provider, list(entries), properties, **options))
        return self.made[-1]


@pytest.fixture
def make() -> Iterator[Managers]:
    managers = Managers()
    yield managers
    for manager in managers.made:
        assert manager.memory_usage().number_allocs == 0
        if len(managers.made) == 1:
            agree(manager, managers.provider)
        manager.close()
    assert not managers.provider.live


def idle(manager: MemoryManager, pages: int, size: int = PAGE) -> None:
    """Let a manager have so many idle pages."""
    held = [manager.reserve(size) for _ in range(pages)]
    held.clear()


ENTRIES = pytest.mark.parametrize("entry", [sliced(PAGE), exclusive(PAGE)])


@ENTRIES
def test_what_wakes_is_within_the_limit(make: Managers, entry: object) -> None:
    manager = make(entry)
    idle(manager, 3)
    manager.trim(rung="decommit")
    manager.limit_bytes = 2 * PAGE
    held = [manager.reserve(PAGE), manager.reserve(PAGE)]
    assert make.provider.counts["commit"] == 2
    with pytest.raises(OutOfMemoryError, match="limit_bytes is"):
        manager.reserve(PAGE)
    assert manager.memory_usage().bytes_reserved == 2 * PAGE
    held.clear()


@ENTRIES
def test_what_is_hidden_counts_as_held_and_wakes_above_the_limit(
    make: Managers, entry: object
) -> None:
    manager = make(entry)
    idle(manager, 2)
    manager.trim(rung="dalloc")
    manager.limit_bytes = PAGE
    held = manager.reserve(PAGE)
    assert manager.memory_usage().bytes_reserved == 2 * PAGE
    assert manager.memory_usage().bytes_hidden == PAGE
    held.release()


def test_sleeping_pages_make_no_room(make: Managers) -> None:
    """What has no memory is not given back in place of what has."""
    manager = make(sliced(PAGE), exclusive(2 * PAGE), thrifty=False)
    idle(manager, 3, 2 * PAGE)
    manager.trim(rung="decommit")
    idle(manager, 2)
    manager.limit_bytes = 3 * PAGE
    with manager.reserve(2 * PAGE):
        usage = manager.memory_usage()
        assert usage.bytes_reserved == 3 * PAGE, "one idle page had to go"
        assert usage.bytes_unbacked == 4 * PAGE, "and none that sleeps"
    assert make.provider.counts["free"] == 1


def test_hidden_pages_make_room(make: Managers) -> None:
    manager = make(sliced(PAGE), exclusive(2 * PAGE), thrifty=False)
    idle(manager, 2)
    manager.trim(rung="dalloc")
    manager.limit_bytes = 3 * PAGE
    manager.reserve(2 * PAGE).release()
    assert manager.memory_usage().bytes_hidden == PAGE


def test_a_page_that_sleeps_in_part_makes_room(make: Managers) -> None:
    manager = make(sliced(PAGE), exclusive(2 * PAGE), thrifty=False)
    half = [manager.reserve(PAGE // 2) for _ in range(2)]
    half.pop()
    manager.trim(rung="decommit")
    half.clear()
    assert manager.pool_usage()[1].asleep_pages == 1
    manager.limit_bytes = 2 * PAGE
    manager.reserve(2 * PAGE).release()
    assert manager.pool_usage()[1].pages == 0
    assert manager.memory_usage().bytes_reserved == 2 * PAGE


@ENTRIES
def test_a_budget_counts_what_has_memory(make: Managers, entry: object) -> None:
    budget = Budget(2 * PAGE)
    first, second = make(entry, budget=budget), make(entry, budget=budget)
    idle(first, 2)
    first.trim(rung="decommit")
    assert budget.held_bytes == 0
    idle(second, 2)
    assert budget.held_bytes == 2 * PAGE
    with first.reserve(PAGE):
        assert budget.held_bytes <= 2 * PAGE, "idle pages of the other have gone"
        first.trim()
        with second.reserve(PAGE):
            second.trim(rung="decommit")
            with pytest.raises(OutOfMemoryError, match="Budget"):
                first.reserve(PAGE)
    idle(first, 2)
    first.trim(rung="decommit")
    with second.reserve(PAGE), first.reserve(PAGE):
        assert make.provider.counts["commit"] == 1
        assert budget.held_bytes == 2 * PAGE


def test_the_peak_is_not_raised_by_what_wakes_beside_idle_pages(make: Managers) -> None:
    manager = make(sliced(PAGE), exclusive(2 * PAGE))
    idle(manager, 1, 2 * PAGE)
    manager.trim(rung="decommit")
    idle(manager, 2)
    with manager.reserve(2 * PAGE):
        assert manager.memory_usage().peak_bytes_reserved == 2 * PAGE
    assert make.provider.counts["commit"] == 1


def test_sleeping_pages_count_towards_a_cap(make: Managers) -> None:
    manager = make(sliced(PAGE, 2 * PAGE), exclusive(PAGE), spill=True)
    idle(manager, 2)
    assert manager.pool_usage()[1].pages == 2
    manager.trim(rung="decommit")
    held = [manager.reserve(PAGE) for _ in range(2)]
    assert [pool.pages for pool in manager.pool_usage()] == [0, 2, 0], "they come back"
    held.append(manager.reserve(PAGE))
    assert [pool.pages for pool in manager.pool_usage()] == [0, 2, 1], "then the next is asked"
    held.clear()


def test_a_pool_at_its_cap_that_sleeps_lacks_memory(make: Managers) -> None:
    """Which is not the same as being full: more could be had without any page."""
    manager = make(sliced(PAGE, PAGE))
    live = manager.reserve(PAGE // 2)
    manager.trim(rung="decommit")
    manager.limit_bytes = PAGE // 2
    with pytest.raises(OutOfMemoryError) as caught:
        manager.reserve(PAGE // 2)
    assert not isinstance(caught.value, PoolCapacityExceeded)
    with pytest.raises(PoolCapacityExceeded):
        manager.reserve(PAGE)
    live.release()


# Age.


@pytest.mark.parametrize("rung", ["dalloc", "decommit", "purge_lazy"])
@pytest.mark.parametrize("kind", [sliced, exclusive])
def test_pages_grow_old_in_their_sleep(make: Managers, kind: object, rung: str) -> None:
    """A page that nobody needs for the period goes, addresses and all."""
    manager = make(kind(PAGE, dealloc_period=10), exclusive(2 * PAGE))
    idle(manager, 2)
    manager.trim(rung=rung)
    for _ in range(40):
        manager.reserve(2 * PAGE).release()
    assert manager.pool_usage()[1].pages == 0
    assert make.provider.live_bytes == 2 * PAGE


def test_a_page_that_sleeps_in_part_grows_old_once_it_is_idle(make: Managers) -> None:
    manager = make(sliced(PAGE, dealloc_period=10), exclusive(2 * PAGE))
    live, other = manager.reserve(PAGE // 2), manager.reserve(PAGE // 2)
    other.release()
    manager.trim(rung="decommit")

    def ask(times: int) -> None:
        for _ in range(times):
            manager.reserve(2 * PAGE).release()

    ask(40)
    assert manager.pool_usage()[1].pages == 1, "a slice is in it"
    live.release()
    ask(6)
    assert manager.pool_usage()[1].pages == 1, "not yet"
    ask(10)
    assert manager.pool_usage()[1].pages == 0


def test_persistent_memory_sleeps_and_is_known(make: Managers) -> None:
    manager = make(exclusive(PAGE), persistent="size-match")
    manager.mode("persistent")
    manager.reserve(PAGE).release()
    manager.mode("auto")
    manager.trim(rung="decommit")
    with manager.reserve(PAGE):
        assert [pool.usage.number_allocs for pool in manager.pool_usage()] == [1, 0]
    assert make.provider.counts["alloc"] == 1


def test_the_page_that_takes_the_least_memory_wakes(make: Managers) -> None:
    manager = make(exclusive(8 * PAGE), thrifty=False)
    sizes = [8 * PAGE, PAGE, 2 * PAGE]
    held = [manager.reserve(size) for size in sizes]
    held.clear()
    pages = sorted(page.size for page in pools_of(manager)[1].map.extents.values())
    manager.trim(rung="decommit")
    new = pools_of(manager)[1].page_bytes(PAGE)
    with manager.reserve(PAGE):
        taken = manager.memory_usage().bytes_reserved
    assert taken == min((size for size in (*pages, new) if size >= PAGE), default=0)


@pytest.mark.parametrize("kind", [sliced, exclusive])
def test_an_aligned_request_wakes_what_can_serve_it(make: Managers, kind: object) -> None:
    """And nothing before: the pages at hand begin at other multiples of 16 KiB."""
    manager = make(kind(48 * KIB))
    held = [manager.reserve(48 * KIB) for _ in range(5)]
    places = [manager.storage(handle).ptr for handle in held]
    assert [place % (64 * KIB) // KIB for place in places] == [0, 48, 32, 16, 0]
    del held[1:]
    manager.trim(rung="decommit")
    ptr = manager.malloc(30 * KIB, 64 * KIB)
    assert ptr == (places[1] + 16 * KIB if kind is sliced else places[4])
    assert make.provider.counts["commit"] == 1
    agree(manager, make.provider)
    manager.free(ptr)
    held.clear()


def test_what_is_left_of_a_range_wakes_as_well(make: Managers) -> None:
    manager = make(sliced(2 * PAGE))
    manager.reserve(2 * PAGE).release()
    manager.trim(rung="decommit")
    held = []
    for slices in range(1, 9):
        held.append(manager.reserve(PAGE // 4))
        agree(manager, make.provider)
        assert manager.memory_usage().bytes_reserved == slices * PAGE // 4
    assert (make.provider.counts["alloc"], make.provider.counts["commit"]) == (1, 8)
    held.clear()


def test_slices_of_an_odd_alignment_begin_at_its_multiples(make: Managers) -> None:
    """Also where the provider could cut a page, and what is left of it would not."""
    properties = {"max_page_size": MIB, "alignment": 1536}
    manager = MemoryManager(make.provider, [sliced(48 * KIB)], properties)
    make.made.append(manager)
    low, live = manager.reserve(20 * KIB), manager.reserve(1000)
    low.release()
    assert manager.trim(rung="decommit") == 0
    with manager.reserve(20 * KIB) as again, manager.reserve(5000) as more:
        for handle in (again, more):
            assert manager.storage(handle).offset % 1536 == 0
    live.release()
    assert manager.trim(rung="decommit") == 48 * KIB
    manager.reserve(7000).release()
    assert make.provider.counts["commit"] == 1


def test_small_requests_do_not_wake_pages_many_times_their_size(make: Managers) -> None:
    manager = make(exclusive(MIB))
    manager.reserve(700).release()
    for _ in range(3):
        manager.reserve(MIB).release()
    manager.trim(rung="decommit")
    for _ in range(500):
        manager.reserve(700).release()
    manager.trim(rung="decommit")
    with manager.reserve(700):
        assert manager.memory_usage().bytes_reserved < 64 * KIB
