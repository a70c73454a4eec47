"""Every driver call of a descent fails once: pool and driver agree, and nothing is left there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fakes.ladders import KINDS, device_of, pattern, read, write
from umfpy import CudaVmmProvider, Growth, InvalidArgument, Pool, Provider, UmfpyError
from umfpy.core.extents import COMING, HIDDEN, LEAVING, UNBACKED
from umfpy.providers.emulated.control import EmulatedDriver

MIB = 1 << 20
GROWTH = Growth(16 * MIB, 16 * MIB)
#: CUDA_ERROR_UNKNOWN, ZE_RESULT_ERROR_UNKNOWN.
UNKNOWN = {"cuda": 999, "level_zero": 0x7FFFFFFE}
RUNGS = ("dalloc", "purge_force", "decommit", "free")


class Script:
    """Every rung beside live memory; a step that fails changes nothing, and works again."""

    def __init__(self, provider: Provider, emulated: EmulatedDriver) -> None:
        self.provider = provider
        self.emulated = emulated
        self.pool = Pool(provider, growth=GROWTH)
        self.live: dict[int, int] = {}
        self.failures = 0

    def step(self, call: Callable[..., int], *arguments: object, **options: object) -> int:
        try:
            return call(*arguments, **options)
        except UmfpyError:
            self.failures += 1
            self.emulated.clear_faults()
            self.agree()
            return call(*arguments, **options)

    def take(self, size: int) -> int:
        ptr = self.step(self.pool.malloc, size)
        self.step(write, self.provider, ptr, pattern(ptr, 4096))
        self.step(write, self.provider, ptr + size - 4096, pattern(ptr + size, 4096))
        self.live[ptr] = size
        return ptr

    def give(self, ptr: int) -> None:
        del self.live[ptr]
        self.pool.free(ptr)

    def run(self) -> None:
        for rung in RUNGS:
            self.take(300_000)
            middle = self.take(9 * MIB)
            self.take(200_000)
            self.give(middle)
            self.step(self.pool.trim, rung=rung)
            self.step(self.pool.trim, rung="decommit")
        for ptr in list(self.live):
            self.give(ptr)
        self.step(self.pool.trim, 4 * MIB)
        self.step(self.pool.trim)

    def agree(self) -> None:
        """The states of the map are those of the memory, and what is live has its bytes."""
        self.pool.check("full")
        for ptr, size in self.live.items():
            assert read(self.provider, ptr, 4096) == pattern(ptr, 4096)
            assert read(self.provider, ptr + size - 4096, 4096) == pattern(ptr + size, 4096)
        for start, span, used, tag in self.pool.map.blocks():
            assert tag not in (LEAVING, COMING)
            if used or tag not in (HIDDEN, UNBACKED):
                read(self.provider, start, min(span, 4096))
                continue
            with pytest.raises(InvalidArgument):
                read(self.provider, start, min(span, 4096))
            if isinstance(self.provider, CudaVmmProvider):
                backed = sum(chunk.size for chunk in self.provider.chunks(start, span))
                assert backed == (span if tag == HIDDEN else 0)

    def end(self) -> None:
        self.emulated.clear_faults()
        self.agree()
        for ptr in list(self.live):
            self.give(ptr)
        self.pool.close()
        assert self.pool.stats().extents == 0
        assert self.provider.live_count() == 0
        self.provider.close()


@pytest.mark.parametrize("kind", ["cuda vmm", "level_zero vmm"])
def test_every_call_of_the_driver_may_fail(kind: str, tmp_path: Path) -> None:
    with device_of(kind) as emulated:
        # given
        whole = Script(KINDS[kind].make(tmp_path), emulated)
        before = sum(emulated.calls.values())
        whole.run()
        calls = sum(emulated.calls.values()) - before
        whole.end()
        assert calls > 50
        failures = 0

        for nth in range(1, calls + 1):
            # when
            script = Script(KINDS[kind].make(tmp_path), emulated)
            emulated.fail("*", nth, UNKNOWN[KINDS[kind].device])
            script.run()

            # then
            script.end()
            failures += script.failures
        assert failures > calls // 2
