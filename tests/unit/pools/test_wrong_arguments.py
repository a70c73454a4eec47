"""What pools and their policies refuse at once, naming it, in place of going wrong later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import (
    CoarseProvider,
    Growth,
    Idle,
    InvalidArgument,
    MemoryManager,
    Pool,
    ProxyPool,
    SharedLimit,
    SlabPool,
    VirtualGrowth,
)

#: What is no whole number, though some of it can be counted with.
NO_NUMBERS = [None, "0", 1.5, float("nan"), float("inf"), True, []]
#: What is no flag, though Python takes it for one.
NO_FLAGS = ["no", 1, 0, None, []]


def refuses(words: str, wrong: object, make: Any, *args: Any, **keywords: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(*args, **keywords)
    assert words in str(caught.value)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("name", ["minimum", "maximum", "divisor"])
@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_growth_is_in_numbers(name: str, wrong: object) -> None:
    refuses(f"{name} must be a whole number", wrong, Growth, **{name: wrong})


@pytest.mark.parametrize(
    "name", ["small_until", "minimum", "divisor", "parts", "finest", "largest", "left"]
)
@pytest.mark.parametrize("wrong", NO_NUMBERS)
def test_virtual_growth_is_in_numbers(name: str, wrong: object) -> None:
    refuses(f"{name} must be a whole number", wrong, VirtualGrowth, **{name: wrong})


@pytest.mark.parametrize("name", ["idle", "scarce"])
@pytest.mark.parametrize("wrong", [None, "0.5", float("nan"), True, [], 0, 1.5])
def test_shares_are_between_nothing_and_all(name: str, wrong: object) -> None:
    refuses("shares must be above 0 and at most 1", wrong, VirtualGrowth, **{name: wrong})


def test_numbers_of_others_become_plain() -> None:
    class Index:
        def __index__(self) -> int:
            return 64 << 20

    growth: Any = Growth(minimum=Index())  # type: ignore[arg-type]
    assert (growth.minimum, type(growth.minimum)) == (64 << 20, int)


@pytest.mark.parametrize("wrong", [None, 5, b"free"])
def test_rungs_are_a_list(wrong: object) -> None:
    refuses("rungs must be a list", wrong, Idle, rungs=wrong)


@pytest.mark.parametrize("wrong", ["5", 1.5, True, 0])
def test_operations_are_counted(wrong: object) -> None:
    refuses(
        "after_operations must be a whole number from 1 on", wrong, Idle, after_operations=wrong
    )


@pytest.mark.parametrize("wrong", ["5", True, 0, float("nan")])
def test_seconds_are_a_time(wrong: object) -> None:
    refuses("after_seconds is a time above 0", wrong, Idle, after_seconds=wrong)


@pytest.mark.parametrize("wrong", NO_FLAGS)
def test_thread_is_a_flag(wrong: object) -> None:
    refuses("thread must be True or False", wrong, Idle, after_seconds=5, thread=wrong)


@pytest.mark.parametrize("wrong", [None, "much", 1.5, True, -1])
def test_a_shared_limit_that_is_changed_is_a_size(wrong: Any) -> None:
    limit = SharedLimit("16MiB")
    with pytest.raises(InvalidArgument):
        limit.limit_bytes = wrong
    limit.limit_bytes = "1MiB"
    assert limit.limit_bytes == 1 << 20


@pytest.mark.parametrize("make", [Pool, ProxyPool, SlabPool])
@pytest.mark.parametrize("wrong", NO_FLAGS)
def test_zero_is_a_flag(make: Any, wrong: object) -> None:
    refuses("zero must be True or False", wrong, make, FakeProvider(), zero=wrong)


@pytest.mark.parametrize("make", [Pool, ProxyPool, SlabPool, MemoryManager])
@pytest.mark.parametrize("wrong", [5, True, b"pool", ["pool"]])
def test_a_name_is_text(make: Any, wrong: object) -> None:
    refuses("name must be text", wrong, make, FakeProvider(), name=wrong)


@pytest.mark.parametrize("wrong", ["no", 1, 0, []])
def test_virtual_is_a_flag_or_left_out(wrong: object) -> None:
    refuses("virtual must be True or False", wrong, Pool, FakeProvider(), virtual=wrong)


@pytest.mark.parametrize("wrong", ["16MiB", 5, True, []])
def test_pools_share_a_limit_that_is_one(wrong: object) -> None:
    words = "shared_limit must be a umfpy.SharedLimit"
    refuses(words, wrong, SlabPool, FakeProvider(), shared_limit=wrong)


@pytest.mark.parametrize("wrong", ["4", None, 1.5, True, -1])
def test_a_capacity_is_a_number(wrong: object) -> None:
    refuses("capacity must be a whole number", wrong, SlabPool, FakeProvider(), capacity=wrong)


@pytest.mark.parametrize("wrong", ["best", None, [], {}])
def test_a_strategy_is_a_word(wrong: object) -> None:
    words = "strategy must be one of 'fastest', 'fastest_but_one', 'check_all_size'"
    refuses(words, wrong, CoarseProvider, FakeProvider(), strategy=wrong)


@pytest.mark.parametrize("wrong", [None, "0", 1.5, [], -1])
def test_what_coarse_memory_cannot_be(wrong: Any) -> None:
    provider = FakeProvider()
    coarse = CoarseProvider(provider)
    refuses("size must be an integer", wrong, coarse.alloc, wrong)
    refuses("ptr must be a whole number from 1 on", wrong, coarse.add, wrong, 4096)
    refuses("size must be a whole number from 1 on", wrong, coarse.add, 1 << 20, wrong)
    assert coarse.stats()["extents"] == 0
    assert not provider.live


@pytest.mark.parametrize("wrong", [None, "much", 1.5, True, -1])
def test_what_coarse_memory_cannot_keep(wrong: Any) -> None:
    coarse = CoarseProvider(FakeProvider(), reserve="1MiB")
    with pytest.raises(InvalidArgument):
        coarse.trim(wrong)
    assert coarse.trim("1MiB") == 0
    assert coarse.trim() == 1 << 20


@pytest.mark.parametrize("wrong", [[], {}, "", "0", 1.5])
def test_what_coarse_memory_cannot_take_back(wrong: Any) -> None:
    refuses("ptr must be an integer", wrong, CoarseProvider(FakeProvider()).free, wrong)
