"""Every driver call of a fixed script fails once; nothing is lost and nothing has changed."""

from __future__ import annotations

import functools
import gc

import pytest

from tests.fakes.driver_faults import Faults, Script, each_call_fails
from umfpy.errors import UmfpyError
from umfpy.provider import Capability
from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider
from umfpy.providers.level_zero.constants import Result
from umfpy.providers.level_zero.driver import LevelZeroDriver

MIB = 1 << 20
CODES = [Result.ZE_RESULT_ERROR_UNKNOWN, Result.ZE_RESULT_ERROR_OUT_OF_DEVICE_MEMORY]


def make(kind):
    if kind == "vmm":
        return LevelZeroVmmProvider()
    return LevelZeroProvider(0, kind, resident_devices=[2])


class Uses(Script):
    """Uses everything, some of it on a list of the caller's."""

    def __init__(self, provider, stream):
        super().__init__(provider)
        self.stream = stream

    def run(self):
        provider, step = self.provider, self.step
        unit = step(provider.granularity)
        step(provider.recommended_granularity, 4 * MIB)
        size = 4 * unit
        ptr = step(provider.alloc, size)
        aligned = step(provider.alloc, 1000, 4 * MIB)
        step(provider.zero, ptr, size)
        step(provider.copy, ptr, b"umfpy", 5)
        step(provider.copy, aligned, ptr, 5, self.stream)
        step(provider.zero, ptr + 8, 8, self.stream)
        step(provider.copy, ptr + 8, b"stream", 6, self.stream)
        step(provider.synchronize)
        assert self.read(aligned, 5) == b"umfpy"
        assert self.read(ptr + 8, 6) == b"stream"
        step(provider.properties, ptr)
        if Capability.SPLIT in provider.capabilities:
            self.pieces(ptr, unit)
        if Capability.RESERVE in provider.capabilities:
            self.apart(unit)
        if isinstance(provider, LevelZeroProvider):
            step(provider.add_resident_device, 1)
            step(provider.remove_resident_device, 1)
        if Capability.IPC in provider.capabilities:
            self.share(ptr, size)
        step(provider.free, ptr, size)
        step(provider.free, aligned, 1000)

    def pieces(self, ptr, unit):
        provider, step = self.provider, self.step
        step(provider.split, ptr, 4 * unit, unit)
        rest = ptr + unit
        step(provider.copy, rest, b"rest", 4)
        step(provider.decommit, ptr, unit)
        step(provider.commit, ptr, unit)
        assert self.read(ptr, unit) == bytes(unit)
        step(provider.dalloc, rest, 3 * unit)
        step(provider.commit, rest, 3 * unit)
        assert self.read(rest, 4) == b"rest"
        step(provider.purge_force, rest, 3 * unit)
        assert self.read(rest, 4) == bytes(4)
        step(provider.merge, ptr, rest, 4 * unit)

    def apart(self, unit):
        """What is kept comes first, then new memory; it moves, it grows, and goes."""
        provider, step = self.provider, self.step
        ptr = step(provider.reserve, 4 * unit)
        provider.split(ptr, 4 * unit, 3 * unit)
        commit = functools.partial(provider.commit, clear=False, chunk_size=2 * unit)
        step(commit, ptr, 3 * unit)
        step(provider.copy, ptr, b"dirt", 4)
        step(provider.decommit, ptr, 3 * unit)
        step(provider.commit, ptr, 3 * unit)
        assert self.read(ptr, 4) == bytes(4)
        step(provider.copy, ptr + 2 * unit, b"stay", 4)
        provider.split(ptr, 3 * unit, 2 * unit)
        target = step(provider.reserve, 2 * unit)
        step(provider.remap, [(ptr, 2 * unit)], target, 2 * unit)
        step(provider.zero, target + unit, 4096)
        assert self.read(ptr + 2 * unit, 4) == b"stay"
        assert step(provider.extend, target, 2 * unit, unit)
        pieces = [(ptr, 2), (ptr + 2 * unit, 1), (ptr + 3 * unit, 1), (target, 3)]
        for at, units in pieces:
            step(provider.free, at, units * unit)
        step(provider.trim)

    def share(self, ptr, size):
        provider, step = self.provider, self.step
        payload = step(provider.ipc_export, ptr, size)
        opened = step(provider.ipc_open, payload)
        assert opened != ptr
        step(provider.copy, opened, b"shared", 6)
        assert self.read(ptr, 6) == b"shared"
        step(provider.ipc_close, opened, size)
        step(provider.ipc_release, payload)


@pytest.fixture
def stream(emu):
    """A list of the caller's, in the context that all providers share while it lives."""
    keeper = LevelZeroProvider(0, "host")
    with keeper._lists.borrowed() as handle:
        yield handle
    keeper.close()


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
@pytest.mark.parametrize("kind", ["device", "host", "shared", "vmm"])
def test_nth_driver_call_fails(kind, code, emu, stream, monkeypatch):
    faults = Faults(emu, monkeypatch, LevelZeroDriver, code)
    total, failures = each_call_fails(lambda: Uses(make(kind), stream), faults, emu)
    assert total > 30
    assert failures > total // 2


@pytest.mark.parametrize("kind", ["device", "host", "shared", "vmm"])
def test_nth_call_of_constructor_and_close_fails(kind, emu, monkeypatch):
    def use():
        provider = make(kind)
        with provider._lists.borrowed():
            pass
        provider.close()

    faults, clean = Faults(emu, monkeypatch, LevelZeroDriver, CODES[0]), emu.live()
    faults.armed = True
    use()
    total = faults.calls
    assert total > 10
    for nth in range(1, total + 1):
        faults.nth = faults.calls + nth
        with pytest.raises(UmfpyError):
            use()
        gc.collect()
        assert emu.live() == clean
