"""Every driver call of a fixed script fails once; nothing is lost and nothing has changed."""

from __future__ import annotations

import contextlib
import functools
import gc

import pytest

from tests.fakes.driver_faults import UNKNOWN, Faults, Script, each_call_fails
from umfpy.errors import DriverError, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability
from umfpy.providers.cuda import CudaAsyncProvider, CudaVmmProvider

MIB = 1 << 20
UNIT = 2 * MIB
OUT_OF_MEMORY = 2

PROVIDERS = {"vmm": CudaVmmProvider, "pool": CudaAsyncProvider}


class Uses(Script):
    """Uses everything, under contexts of the caller's that stay as they were."""

    def __init__(self, provider, emu, context_stack):
        super().__init__(provider)
        self.emu = emu
        self.context_stack = context_stack

    def state(self):
        """What is at which addresses."""
        live = self.emu.live()
        kinds = ("mappings", "pooled", "opens", "pool_opens", "exports")
        held = {kind: sorted(live.get(kind, [])) for kind in kinds}
        return held, super().state(), self.context_stack()

    def step(self, function, *args):
        stack = self.context_stack()
        result = super().step(function, *args)
        assert self.context_stack() == stack
        return result

    def run(self):
        provider, step = self.provider, self.step
        size = 2 * UNIT
        ptr = step(provider.alloc, size)
        aligned = step(provider.alloc, 1000, 8 * MIB)
        step(provider.zero, ptr, 4096)
        step(provider.zero, ptr, 4096, 0)
        step(provider.copy, ptr, b"umfpy", 5)
        step(provider.copy, aligned, ptr, 5)
        assert self.read(aligned, 5) == b"umfpy"
        step(provider.properties, ptr)
        step(provider.properties, 1 << 20)
        step(provider.memory_info)
        if isinstance(provider, CudaVmmProvider):
            self.pieces(ptr)
            self.growth()
            self.backing()
            self.moves()
        else:
            self.streams()
        self.share(aligned, 1000)
        step(provider.free, ptr, size)
        step(provider.free, aligned, 1000)
        step(provider.trim)

    def pieces(self, ptr):
        provider, step = self.provider, self.step
        provider.split(ptr, 2 * UNIT, UNIT)
        rest = ptr + UNIT
        step(provider.copy, rest, b"rest", 4)
        step(provider.decommit, ptr, UNIT)
        step(provider.dalloc, rest, UNIT)
        provider.merge(ptr, rest, 2 * UNIT)
        step(provider.commit, ptr, 2 * UNIT)
        assert self.read(ptr, 4096) == bytes(4096)
        assert self.read(rest, 4) == b"rest"
        step(provider.purge_force, ptr, 2 * UNIT)
        assert self.read(rest, 4) == bytes(4)

    def growth(self):
        provider, step = self.provider, self.step
        ptr = step(provider.alloc, UNIT)
        step(provider.copy, ptr, b"grow", 4)
        assert step(provider.extend, ptr, UNIT, 2 * UNIT)
        assert self.read(ptr, 4) == b"grow"
        step(provider.free, ptr, 3 * UNIT)

    def backing(self):
        """What is kept comes first, then new memory; what fails is kept again, or gone."""
        provider, step = self.provider, self.step
        ptr = step(provider.reserve, 4 * UNIT)
        provider.split(ptr, 4 * UNIT, 3 * UNIT)
        commit = functools.partial(provider.commit, clear=False, chunk_size=2 * UNIT)
        step(commit, ptr, 3 * UNIT)
        step(provider.copy, ptr, b"dirt", 4)
        step(provider.decommit, ptr, 3 * UNIT)
        step(provider.commit, ptr, 3 * UNIT)
        assert self.read(ptr, 4) == bytes(4)
        for at, size in ((ptr, 3 * UNIT), (ptr + 3 * UNIT, UNIT)):
            step(provider.free, at, size)

    def moves(self):
        """Two sources, one of them hidden, and what lies between them stays."""
        provider, step = self.provider, self.step
        ptr = step(provider.alloc, 3 * UNIT)
        step(provider.copy, ptr + UNIT, b"stay", 4)
        provider.split(ptr, 3 * UNIT, UNIT)
        provider.split(ptr + UNIT, 2 * UNIT, UNIT)
        step(provider.dalloc, ptr + 2 * UNIT, UNIT)
        target = step(provider.reserve, 2 * UNIT)
        sources = [(ptr, UNIT), (ptr + 2 * UNIT, UNIT)]
        step(provider.remap, sources, target, 2 * UNIT)
        step(provider.zero, target + UNIT, 4096)
        assert self.read(ptr + UNIT, 4) == b"stay"
        step(provider.free, target, 2 * UNIT)
        for at in range(3):
            step(provider.free, ptr + at * UNIT, UNIT)

    def streams(self):
        provider, step = self.provider, self.step
        ptr = step(provider.alloc, 4096, 0, provider.stream)
        step(provider.zero, ptr, 4096, provider.stream)
        step(provider.free, ptr, 4096, provider.stream)
        step(provider.stats)
        step(provider.reset_highs)

    def share(self, ptr, size):
        provider, step = self.provider, self.step
        if Capability.IPC not in provider.capabilities:
            return
        payload = step(provider.ipc_export, ptr, size)
        opened = step(provider.ipc_open, payload)
        assert self.read(opened, 5) == b"umfpy"
        step(provider.ipc_close, opened, size)
        step(provider.ipc_release, payload)


@pytest.mark.parametrize("callers_contexts", ["own and other"], indirect=True)
@pytest.mark.parametrize("code", [UNKNOWN, OUT_OF_MEMORY])
@pytest.mark.parametrize("kind", list(PROVIDERS))
def test_nth_driver_call_fails(kind, code, emu, context_stack, callers_contexts, monkeypatch):
    faults = Faults(emu, monkeypatch, code=code)
    total, failures = each_call_fails(
        lambda: Uses(PROVIDERS[kind](), emu, context_stack), faults, emu
    )
    assert total > 60
    # Failures to pop a context or to release something are mended, the others are seen.
    assert failures > total // 2


@pytest.mark.parametrize("kind", list(PROVIDERS))
def test_nth_call_of_constructor_and_close_fails(kind, emu, callers_contexts, monkeypatch):
    faults, clean = Faults(emu, monkeypatch), emu.live()
    faults.armed = True
    PROVIDERS[kind]().close()
    total = faults.calls
    failures = 0
    for nth in range(1, total + 1):
        faults.nth = faults.calls + nth
        try:
            PROVIDERS[kind]().close()
        except UmfpyError:
            failures += 1
        gc.collect()
        assert emu.live() == clean
    assert failures >= total - 1  # a failure to pop the context is mended


@pytest.mark.parametrize("call", ["cuMemUnmap", "cuMemSetAccess", "cuMemMap"])
def test_two_failures_in_a_row_lose_nothing_for_good(emu, call):
    """What cannot be undone at once is, at the latest, when the provider is closed."""
    for nth in range(1, 5):
        provider = CudaVmmProvider()
        source = provider.alloc(2 * UNIT)
        target = provider.reserve(2 * UNIT)
        for other in ("cuMemSetAccess", "cuMemMap", call):
            emu.fail(other, nth=nth, error=UNKNOWN, times=2)
        with contextlib.suppress(DriverError):
            provider.remap([(source, 2 * UNIT)], target, 2 * UNIT)
        emu.clear_faults()
        emu.fail("cuMemSetAccess", error=UNKNOWN)
        emu.fail(call, nth=nth, error=UNKNOWN, times=2)
        with contextlib.suppress(DriverError):
            provider.free(provider.alloc(4 * UNIT), 4 * UNIT)
        emu.clear_faults()
        for ptr in (source, target):
            provider.free(ptr, 2 * UNIT)
        provider.close()
        assert not emu.leaks()


def test_a_commit_that_cannot_be_undone_is_cleared_later(emu):
    provider = CudaVmmProvider()
    dirty = provider.alloc(3 * UNIT)
    provider.copy(dirty, b"x" * 3 * UNIT, 3 * UNIT)
    ptr = provider.reserve(3 * UNIT)
    provider.free(dirty, 3 * UNIT)
    emu.fail("cuMemsetD8_v2", error=UNKNOWN)
    emu.fail("cuMemUnmap", error=UNKNOWN)
    with pytest.raises(DriverError, match="cuMemsetD8"):
        provider.commit(ptr, 3 * UNIT)
    assert provider.properties(ptr)["committed"] is False
    provider.commit(ptr, 3 * UNIT)
    seen = bytearray(3 * UNIT)
    provider.copy(seen, ptr, 3 * UNIT)
    assert seen == bytes(3 * UNIT)
    provider.free(ptr, 3 * UNIT)
    provider.close()


def test_memory_runs_out_at_every_chunk(emu):
    """Nothing of what was there before is left behind at half of an allocation."""
    provider = CudaVmmProvider(chunk_size="512MiB")
    held = [provider.alloc(512 * MIB) for _ in range(5)]
    with pytest.raises(OutOfMemoryError):
        provider.alloc(2 << 30)
    assert provider.reserved_bytes - provider.kept_bytes == 5 * 512 * MIB
    last = provider.alloc(1 << 30)
    for ptr in held:
        provider.free(ptr, 512 * MIB)
    provider.free(last, 1 << 30)
    provider.close()
