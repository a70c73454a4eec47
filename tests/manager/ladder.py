"""Managers of every layout, with pages of which some are in use and the rest are not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.fakes.laddered import LadderedProvider
from tests.fakes.ladders import pattern as unique
from tests.fakes.ladders import read, write
from tests.manager.support import MIB, exclusive, sliced
from umfpy import (
    Allocation,
    Capability,
    MemoryConfiguration,
    MemoryManager,
    OutOfMemoryError,
    Provider,
    find,
)
from umfpy.core.extents import COMING, HIDDEN, LEAVING, UNBACKED
from umfpy.pools.base import ProviderPool

ALIGNMENT = 512
SMALLEST_ARENA = 32 * MIB
_PERIOD = 4157  # of the pattern: a prime, so that no page looks like the one before
PAGE = 8 * MIB


@dataclass(frozen=True)
class Shape:
    """A layout, and whether the free parts of its pages can go down by themselves."""

    configuration: object
    properties: dict[str, int] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    parts: bool = False
    slice_size: int = 0  #: more than half a page

    def manager(self, provider: Provider, **options: object) -> MemoryManager:
        properties = {"max_page_size": 64 * MIB, "alignment": ALIGNMENT, **self.properties}
        return MemoryManager(
            provider, self.configuration, properties, **{**self.options, **options}
        )


def shapes(page: int) -> dict[str, Shape]:
    """Every layout, with pages of about so many bytes."""
    return {
        "sliced": Shape([sliced(page)], parts=True),
        "sliced, uneven": Shape(
            [sliced(page * 3 // 2)], {"alignment": 3 * ALIGNMENT}, slice_size=page
        ),
        "sliced, odd pages": Shape([sliced(page + ALIGNMENT)]),
        "exclusive": Shape([exclusive(page)]),
        "persistent": Shape([sliced(page)], options={"persistent": "enforced"}),
        "direct": Shape("exclusive_pages", {"max_page_size": 512, "largest_request": 1 << 40}),
        "single arena": Shape(
            MemoryConfiguration.single_arena(page),
            parts=True,
            slice_size=SMALLEST_ARENA // 2 + page,
        ),
    }


SHAPES = shapes(PAGE)


def pattern(ptr: int, size: int) -> bytes:
    """Bytes that no two owners have in common."""
    return (unique(ptr, _PERIOD) * (size // _PERIOD + 1))[:size]


class Scene:
    """A manager with a live slice; what was reserved before and after it is free again.

    Each is more than half a page, so that where slices share pages none share one of these.
    """

    def __init__(self, shape: Shape, provider: Provider, page: int = PAGE) -> None:
        self.provider = provider
        self.manager = shape.manager(provider)
        self.size = shape.slice_size or page // 2 + 66_000
        low, live, high = (self.take() for _ in range(3))
        self.live = [live]
        self.free = [low.ptr, high.ptr]
        low.free()
        high.free()

    def take(self, size: int | None = None, *, zero: bool = False) -> Allocation:
        """Return memory with a pattern of its own, after a look at whether it reads as zero."""
        wanted = self.size if size is None else size
        taken = self.manager.allocate(wanted, zero=zero)
        if zero:
            assert read(self.provider, taken.ptr, wanted) == bytes(wanted)
        write(self.provider, taken.ptr, pattern(taken.ptr, wanted))
        return taken

    def check(self) -> None:
        """The manager is sound, its numbers agree, and what is live has every byte."""
        self.manager.check("full")
        for one in self.live:
            assert read(self.provider, one.ptr, one.size) == pattern(one.ptr, one.size)
            for at in (one.ptr, one.ptr + one.size - 1):
                assert find(at).base == one.ptr
        usage, stats = self.manager.memory_usage(), self.manager.stats()
        assert usage.number_allocs == stats.live_allocations == len(self.live)
        assert usage.bytes_in_use == stats.requested_bytes == sum(one.size for one in self.live)
        assert usage.bytes_reserved == stats.reserved_bytes
        assert usage.bytes_hidden == stats.hidden_bytes
        assert usage.bytes_unbacked == stats.unbacked_bytes
        asleep = sum(pool.asleep_pages for pool in self.manager.pool_usage())
        assert bool(asleep) <= bool(usage.bytes_hidden or usage.bytes_unbacked)
        assert ("asleep" in self.manager.report()) == bool(
            usage.bytes_hidden or usage.bytes_unbacked
        )

    def end(self) -> None:
        while self.live:
            self.live.pop().free()
        self.manager.trim()
        self.check()
        usage = self.manager.memory_usage()
        assert (usage.bytes_reserved, usage.bytes_hidden, usage.bytes_unbacked) == (0, 0, 0)
        assert all(pool.pages == 0 for pool in self.manager.pool_usage())
        self.manager.close()


class Scarce(LadderedProvider):
    """A device of so many bytes, whatever addresses there are."""

    def __init__(self, memory: int, capabilities: Capability) -> None:
        super().__init__(capabilities)
        self.memory = memory

    def alloc(self, size: int, alignment: int = 0) -> int:
        self._admit(size)
        return super().alloc(size, alignment)

    def commit(self, ptr: int, size: int, **options: object) -> None:
        self._admit(sum(self.unit for at in range(ptr, ptr + size, self.unit) if at in self.gone))
        super().commit(ptr, size, **options)

    def _admit(self, size: int) -> None:
        if self.held + size > self.memory:
            self.calls.append(("refused", size))
            raise OutOfMemoryError(f"no {size} bytes left", requested=size)


def pools_of(manager: MemoryManager) -> Sequence[ProviderPool]:
    """Return the pools that a manager's memory lies in."""
    return manager._holdings.pools


def agree(manager: MemoryManager, provider: LadderedProvider) -> None:
    """Raise unless a manager and its provider are of one opinion about every byte."""
    manager.check("full")
    known: dict[int, int] = {}
    for pool in pools_of(manager):
        for page in pool.map.extents.values():
            known.update(pool._cuts.pieces(page))
        for start, span, used, tag in pool.map.blocks():
            assert tag not in (LEAVING, COMING), "nobody is at it any more"
            wanted = tag if tag in (HIDDEN, UNBACKED) and not used else 0
            for at in (start, *range(-(-start // 4096) * 4096, start + span, 4096)):
                assert provider.state(at) == wanted, f"{at:#x} is in the state of its block"
        for state, ranges in pool._sleepers._by_state.items():
            found = sorted((size, start) for start, size in pool.map.free_ranges(state))
            assert ranges == found, "what is known to sleep does, and nothing else"
    assert known == provider.live, "the pieces are those of the provider"
    usage = manager.memory_usage()
    assert usage.bytes_reserved + usage.bytes_unbacked == provider.live_bytes
    gone = (
        min(provider.unit, ptr + size - at)
        for ptr, size in provider.live.items()
        for at in range(ptr, ptr + size, provider.unit)
        if at in provider.gone
    )
    assert usage.bytes_unbacked == sum(gone)
