"""A pool whose making was cut short, at any point, leaves nothing behind and says nothing."""

from __future__ import annotations

import gc
import inspect
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import (
    Capability,
    CoarseProvider,
    HostProvider,
    Idle,
    InvalidArgument,
    MemoryManager,
    Pool,
    Provider,
    ProxyPool,
    SharedLimit,
    SlabPool,
)
from umfpy.manager import Budget

MIB = 1 << 20

MAKERS: dict[str, Callable[[Provider], Any]] = {
    "pool": Pool,
    "pool with a policy": lambda provider: Pool(provider, idle=Idle(after_seconds=60, thread=True)),
    "proxy": ProxyPool,
    "slab": lambda provider: SlabPool(provider, shared_limit=SharedLimit("1MiB")),
    "coarse": lambda provider: CoarseProvider(provider, reserve=MIB),
    "nested": lambda provider: Pool(Pool(provider)),
    "sub_slices": lambda provider: MemoryManager(provider, "sub_slices", budget=Budget("1GiB")),
    "exclusive_pages": lambda provider: MemoryManager(provider, "exclusive_pages"),
}


class CutShort(Exception):
    """Raised in the middle of what was to be cut short."""


def cut_short(make: Callable[[], object], nth: int) -> bool:
    """Have the nth call of umfpy's functions under `make` raise; return whether it came to that."""
    left = nth

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal left
        ours = frame.f_globals.get("__name__", "").startswith("umfpy.")
        # A generator is called to be closed, too, with nobody to raise at.
        if event == "call" and ours and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            left -= 1
            if not left:
                raise CutShort

    before = sys.getprofile()
    sys.setprofile(watch)
    made = None
    try:
        made = make()
    except CutShort:
        return True
    finally:
        sys.setprofile(before)
    del made  # its own calls are not what is cut short
    return False


def cut_short_everywhere(make: Callable[[], object], check: Callable[[], None]) -> int:
    """Cut `make` short at one call after the other; return how many there are."""
    nth = 1
    while cut_short(make, nth):
        gc.collect(0)
        check()
        nth += 1
    return nth - 1


@pytest.mark.parametrize("kind", MAKERS)
def test_a_pool_cut_short_at_any_call(kind: str) -> None:
    provider = FakeProvider(capabilities=Capability.STREAMS)

    def clean() -> None:
        assert provider.live == {}

    assert cut_short_everywhere(lambda: MAKERS[kind](provider), clean) > 3


def test_a_pool_over_addresses_cut_short_at_any_call() -> None:
    provider = HostProvider()

    def clean() -> None:
        Pool(provider, virtual=True).close()

    assert cut_short_everywhere(lambda: Pool(provider, virtual=True), clean) > 10


@pytest.mark.parametrize(
    "mistake",
    [
        {"limit_bytes": "much"},
        {"idle": "often"},
        {"growth": 3},
        {"virtual": True},
        {"zero": True},
        {"name": "named", "idle": 3},
    ],
    ids=repr,
)
def test_a_pool_with_a_bad_argument(mistake: dict[str, Any]) -> None:
    provider = FakeProvider()
    with pytest.raises(InvalidArgument):
        Pool(provider, **mistake)
    assert provider.live == {}


def test_a_subclass_that_fails_with_memory_in_it_gives_it_back() -> None:
    provider = FakeProvider()

    class Careless(Pool):
        def __init__(self) -> None:
            super().__init__(provider)
            self.allocate(MIB).free()
            raise RuntimeError("not made")

    with pytest.raises(RuntimeError, match="not made"):
        Careless()
    gc.collect()
    assert provider.live == {}
