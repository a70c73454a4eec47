"""Allocations, frees and every rung in any order: live bytes stay, and the states are true."""

from __future__ import annotations

import os
from unittest import mock

import hypothesis.strategies as st
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from tests.fakes.ladders import pattern, read, write
from umfpy import (
    Capability,
    CudaVmmProvider,
    Growth,
    HostProvider,
    Idle,
    LevelZeroVmmProvider,
    Pool,
    VirtualGrowth,
)
from umfpy.core.extents import COMING, HIDDEN, LEAVING, UNBACKED
from umfpy.pools.rungs import RUNGS, choose
from umfpy.providers.emulated import emulate

KIB, MIB = 1 << 10, 1 << 20
IDLE = Idle(rungs=("dalloc", "purge_lazy", "decommit"))
#: Bytes that are compared at either end of an allocation, and every so often inside.
SAMPLE, STRIDE = 96, 200 * KIB


class RungsMachine(RuleBasedStateMachine):
    """A pool over memory of a provider, which says itself what is behind an address."""

    live = Bundle("live")
    scale = 1
    device = ""

    def provider(self) -> HostProvider:
        raise NotImplementedError

    def options(self) -> dict[str, object]:
        return {"growth": Growth(self.scale * MIB, self.scale * MIB)}

    @initialize()
    def begin(self) -> None:
        self.patched = mock.patch.dict(os.environ)
        self.patched.start()
        self.emulated = emulate(self.device, memory="4GiB") if self.device else None
        self.before = self.emulated.leaks() if self.emulated else None
        self.source = self.provider()
        self.pool = Pool(self.source, idle=IDLE, **self.options())
        self.held: dict[int, int] = {}

    @rule(
        target=live,
        size=st.sampled_from([1, 700, 4 * KIB, 70 * KIB, 130 * KIB, 301 * KIB, 1100 * KIB]),
        alignment=st.sampled_from([0, 0, 0, 64 * KIB]),
        stream=st.sampled_from([0, 0, 1, 2]),
        zero=st.sampled_from([False, False, True]),
    )
    def allocate(self, size: int, alignment: int, stream: int, zero: bool) -> int:
        size *= self.scale
        # Streams that do not exist on a device are never asked to clear anything.
        ptr = self.pool.malloc(size, alignment, 0 if zero else stream, zero=zero)
        assert ptr % max(alignment, 1) == 0
        for at, length in self._samples(ptr, size):
            if zero:
                assert read(self.source, at, length) == bytes(length)
            write(self.source, at, pattern(at, length))
        self.held[ptr] = size
        return ptr

    @rule(ptr=consumes(live), stream=st.sampled_from([None, 1, 2]))
    def free(self, ptr: int, stream: int | None) -> None:
        self.pool.free(ptr, self.held.pop(ptr), stream)

    @rule(
        rung=st.sampled_from(RUNGS),
        keep=st.sampled_from([0, 0, 300 * KIB, 2 * MIB]),
    )
    def trim(self, rung: str, keep: int) -> None:
        keep *= self.scale
        before = self.pool.stats()
        went = self.pool.trim(keep, rung=rung)
        now = self.pool.stats()
        taken = choose(rung, self.source.capabilities)
        assert went.rung in (None, taken)
        assert now.used_bytes == before.used_bytes
        gone = before.reserved_bytes - now.reserved_bytes
        if taken == "dalloc":
            assert (now.hidden_bytes - before.hidden_bytes, gone) == (went, 0)
        elif taken in ("purge_lazy", "purge_force"):
            assert gone == 0
        else:
            assert gone == went
        if taken not in ("purge_lazy", "purge_force"):
            ready = before.reserved_bytes - before.hidden_bytes
            assert now.reserved_bytes - now.hidden_bytes >= min(keep, ready)

    @rule()
    def sweep(self) -> None:
        peak = self.pool.stats().peak_used_bytes
        for went in self.pool.sweep():
            assert went > 0
        assert self.pool.stats().peak_used_bytes == peak

    @rule()
    def wait(self) -> None:
        self.pool.synchronize()

    @invariant()
    def everything_is_as_it_was_left(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check("full")
        for ptr, size in self.held.items():
            for at, length in self._samples(ptr, size):
                assert read(self.source, at, length) == pattern(at, length)
        now = self.pool.stats()
        assert now.live_allocations == len(self.held)
        assert now.reserved_bytes + now.unbacked_bytes == sum(
            extent.size for extent in self.pool.map.extents.values()
        )
        self._check_states()

    def _check_states(self) -> None:
        """What the map says of memory is what the provider says."""
        unit = self.source.granularity()
        for start, span, used, tag in self.pool.map.blocks():
            assert tag not in (LEAVING, COMING)
            low, high = -(-start // unit) * unit, (start + span) // unit * unit
            if low < high and Capability.RESERVE in self.source.capabilities:
                chunks = self.source.chunks(low, high - low)
                if not used and tag == UNBACKED:
                    assert not chunks
                elif not used and tag == HIDDEN:
                    assert sum(chunk.size for chunk in chunks) == span

    def _samples(self, ptr: int, size: int) -> list[tuple[int, int]]:
        """Where an allocation is written and read: begin, end, and places between."""
        length = min(size, SAMPLE)
        inside = range(STRIDE, size - 2 * SAMPLE, STRIDE)
        return [(ptr, length), *((ptr + at, SAMPLE) for at in inside)] + (
            [(ptr + size - SAMPLE, SAMPLE)] if size >= 2 * SAMPLE else []
        )

    def teardown(self) -> None:
        if not hasattr(self, "pool"):
            return
        for ptr in list(self.held):
            self.pool.free(ptr)
        self.pool.close()
        self.pool.check("full")
        now = self.pool.stats()
        assert (now.extents, now.reserved_bytes, now.unbacked_bytes) == (0, 0, 0)
        assert self.source.live_count() == 0
        self.source.close()
        if self.emulated is not None:
            assert self.emulated.leaks() == self.before
        self.patched.stop()


class HostMachine(RungsMachine):
    def provider(self):
        return HostProvider()


class VirtualHostMachine(HostMachine):
    """Addresses and memory apart, in pages of the host."""

    def options(self):
        return {"virtual": True, "growth": VirtualGrowth()}


class SharedHostMachine(RungsMachine):
    def provider(self):
        return HostProvider(shared=True)


class CudaMachine(RungsMachine):
    """Extents of chunks of physical memory."""

    scale = 16
    device = "cuda"

    def provider(self):
        return CudaVmmProvider()


class VirtualCudaMachine(CudaMachine):
    """Chunks that go where they are needed."""

    def options(self):
        return {}


class LevelZeroMachine(RungsMachine):
    scale = 16
    device = "level_zero"

    def provider(self):
        return LevelZeroVmmProvider()


def _case(machine: type[RungsMachine]) -> type:
    machine.TestCase.settings = settings(
        max_examples=25,
        stateful_step_count=25,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        database=None,
    )
    return machine.TestCase


TestHost = _case(HostMachine)
TestVirtualHost = _case(VirtualHostMachine)
TestSharedHost = _case(SharedHostMachine)
TestCuda = _case(CudaMachine)
TestVirtualCuda = _case(VirtualCudaMachine)
TestLevelZero = _case(LevelZeroMachine)
