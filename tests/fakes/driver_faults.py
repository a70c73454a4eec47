"""Calls of a driver that fail when a test says so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from umfpy.errors import UmfpyError
from umfpy.provider import Provider
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.emulated.control import EmulatedDriver

#: CUDA_ERROR_UNKNOWN.
UNKNOWN = 999


class Faults:
    """Lets the nth driver call from now fail, of those that are made while it is `armed`.

    `driver` is umfpy's side of the driver: what the test asks of it itself is not counted.
    """

    def __init__(
        self,
        emu: EmulatedDriver,
        monkeypatch: pytest.MonkeyPatch,
        driver: type[Any] = CudaDriver,
        code: int = UNKNOWN,
    ) -> None:
        self.calls = self.nth = 0
        self.code = code
        self.armed = False
        original = driver.call

        def call(asked: Any, name: str, *arguments: object) -> object:
            self.calls += self.armed
            if self.armed and self.calls == self.nth:
                # Contexts do not run out of memory.
                emu.fail("*", error=UNKNOWN if name.startswith("cuCtx") else self.code)
            return original(asked, name, *arguments)

        monkeypatch.setattr(driver, "call", call)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the calls of the body, and no others."""
        self.armed = True
        try:
            yield
        finally:
            self.armed = False


class Script:
    """Uses a provider; a step that fails has changed nothing, and works the second time."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.failures = 0

    def state(self) -> object:
        """What a step that fails must not change."""
        return self.provider.live_count()

    def step(self, function: Callable[..., Any], *arguments: object) -> Any:
        before = self.state()
        try:
            return function(*arguments)
        except UmfpyError:
            self.failures += 1
            assert self.state() == before
            return function(*arguments)

    def read(self, ptr: int, size: int) -> bytes:
        data = bytearray(size)
        self.step(self.provider.copy, data, ptr, size)
        return bytes(data)

    def run(self) -> None:
        raise NotImplementedError


def each_call_fails(
    begin: Callable[[], Script], faults: Faults, emu: EmulatedDriver
) -> tuple[int, int]:
    """Run a script as it is, then as often as it makes calls, each time with the next one failing.

    Return how many calls it makes, and how many of the failures were seen.
    """

    def run(nth: int) -> int:
        script = begin()
        faults.calls, faults.nth = 0, nth
        with faults.watching():
            script.run()
        script.provider.close()
        assert faults.calls >= nth
        return script.failures

    assert run(0) == 0
    total, clean, files = faults.calls, emu.leaks(), len(os.listdir("/proc/self/fd"))
    failures = 0
    for nth in range(1, total + 1):
        failures += run(nth)
        assert emu.leaks() == clean
    assert len(os.listdir("/proc/self/fd")) == files
    return total, failures
