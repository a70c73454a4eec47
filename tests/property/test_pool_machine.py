"""Pools, nested pools and coarse providers in any order of calls, the provider failing at will."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import (
    Allocation,
    Capability,
    CoarseProvider,
    Growth,
    OutOfMemoryError,
    Pool,
    ProxyPool,
    find,
)
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
SIZES = st.one_of(
    st.sampled_from([0, 1, 511, 512, 513, 4096, 64 * KIB, 300 * KIB]),
    st.integers(0, 20 * KIB),
)
ALIGNMENTS = st.sampled_from([0, 0, 0, 1, 512, 4096, 64 * KIB])
STREAMS = st.sampled_from([None, 1, 2])
GROWTH = Growth(minimum=64 * KIB, maximum=256 * KIB)


def granules(start: int, size: int) -> range:
    return range(start, start + max(size, 1), 512)


class PoolMachine(RuleBasedStateMachine):
    """Allocations of several pools over one provider, against a list of what is live.

    `unordered` maps each granule that was freed to the stream that may still be using it.
    """

    live = Bundle("live")

    @initialize(shape=st.sampled_from(["pool", "nested", "coarse", "proxy"]))
    def build(self, shape: str) -> None:
        self.provider = FakeProvider(
            capacity=1 << 20, unit=4096, capabilities=Capability.STREAMS | Capability.ZERO
        )
        self.provider.on_synchronize = self._device_is_idle
        self.coarse: CoarseProvider | None = None
        self.pools: list[ProviderPool] = [Pool(self.provider, growth=GROWTH)]
        if shape == "nested":
            self.pools.append(Pool(self.pools[0], growth=GROWTH))
        if shape in ("coarse", "proxy"):
            self.coarse = CoarseProvider(self.provider)
            kind = {"coarse": Pool, "proxy": ProxyPool}[shape]
            self.pools.append(kind(self.coarse))
        self.held: dict[int, tuple[int, int]] = {}  # start: size, stream
        self.objects: dict[int, Allocation] = {}
        self.unordered: dict[int, int] = {}

    def _device_is_idle(self) -> None:
        self.unordered.clear()

    @rule(target=live, which=st.integers(0, 1), size=SIZES, alignment=ALIGNMENTS, stream=STREAMS)
    def allocate(
        self, which: int, size: int, alignment: int, stream: int | None
    ) -> Allocation | None:
        pool = self.pools[which % len(self.pools)]
        before = self._picture()
        try:
            allocation = pool.allocate(size, alignment, stream)
        except (OutOfMemoryError, FakeFailure):
            assert self._picture() == before, "a failed request leaves nothing behind"
            return None
        self._check_placement(allocation.ptr, size, alignment, stream or 0)
        self.held[allocation.ptr] = (size, stream or 0)
        self.objects[allocation.ptr] = allocation
        return allocation

    def _check_placement(self, start: int, size: int, alignment: int, stream: int) -> None:
        end = start + max(size, 1)
        assert start % max(alignment, 512) == 0
        for other, (length, _) in self.held.items():
            assert end <= other or other + max(length, 1) <= start, "no overlap with live memory"
        for granule in granules(start, size):
            assert self.unordered.pop(granule, stream) == stream, "a stream may be using this"
        base = max(b for b in self.provider.live if b <= start)
        assert end <= base + self.provider.live[base], "inside what the provider gave"

    @rule(allocation=consumes(live), stream=STREAMS)
    def free(self, allocation: Allocation | None, stream: int | None) -> None:
        if allocation is None:
            return
        start = allocation.ptr
        size, made_on = self.held[start]
        # Where a pool waits for the device within this call, it is idle afterwards.
        for granule in granules(start, size):
            self.unordered[granule] = made_on if stream is None else stream
        try:
            allocation.free(stream)
        except FakeFailure:
            assert find(start) is not None, "a failed free leaves the allocation live"
            self.provider.recover()
            allocation.free(stream)
        del self.held[start], self.objects[start]

    @precondition(lambda self: self.objects)
    @rule(data=st.data(), size=SIZES)
    def resize(self, data: st.DataObject, size: int) -> None:
        start = data.draw(st.sampled_from(sorted(self.objects)))
        allocation = self.objects[start]
        old, stream = self.held[start]
        if not allocation.resize(size):
            assert (allocation.ptr, allocation.size) == (start, old)
            return
        self.held[start] = (size, stream)
        kept = set(granules(start, old))
        if size > old:
            del self.held[start]  # what it had is its own
            self._check_placement(start, size, 0, stream)
            self.held[start] = (size, stream)
        elif type(allocation.pool) is Pool:
            self.unordered.update(dict.fromkeys(kept - set(granules(start, size)), stream))

    @rule(which=st.integers(0, 1), keep=st.sampled_from([0, 100 * KIB]))
    def trim(self, which: int, keep: int) -> None:
        pool = self.pools[which % len(self.pools)]
        before = pool.stats().reserved_bytes
        try:
            released = pool.trim(keep)
        except FakeFailure:
            return
        assert pool.stats().reserved_bytes == before - released

    @rule(which=st.integers(0, 1))
    def wait(self, which: int) -> None:
        try:
            self.pools[which % len(self.pools)].synchronize()
        except FakeFailure:
            return

    @rule(nth=st.integers(1, 3))
    def fail_soon(self, nth: int) -> None:
        self.provider.fail(nth)

    @precondition(lambda self: self.coarse is not None)
    @rule()
    def trim_coarse(self) -> None:
        try:
            self.coarse.trim()
        except FakeFailure:
            return

    @invariant()
    def everything_adds_up(self) -> None:
        if not hasattr(self, "pools"):
            return
        for pool in self.pools:
            pool.check("full")
        if self.coarse is not None:
            self.coarse.check("full")
        assert sum(pool.stats().requested_bytes for pool in self.pools) >= sum(
            size for size, _ in self.held.values()
        )
        for start, (size, _) in self.held.items():
            for address in (start, start + max(size, 1) - 1):
                assert find(address).base == start, "found from each of its addresses"

    def _picture(self) -> list[object]:
        """What a failed request must not change: live memory, block by block."""
        pool = self.pools[-1]
        now = pool.stats()
        used = [(start, span) for start, span, is_used, _ in pool.map.blocks() if is_used]
        return [used, now.requested_bytes, now.live_allocations]

    def teardown(self) -> None:
        """Free everything; then all of it goes back, in one piece each."""
        if not hasattr(self, "pools"):
            return
        self.provider.recover()
        for allocation in list(self.objects.values()):
            allocation.free()
        for pool in reversed(self.pools):
            pool.close()
            pool.check("full")
            assert pool.stats().reserved_bytes == 0
        if self.coarse is not None:
            self.coarse.close()
        assert not self.provider.live


PoolMachine.TestCase.settings = settings(
    max_examples=50,
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
TestPoolMachine = PoolMachine.TestCase
