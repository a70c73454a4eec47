"""Calls of a CUDA driver that fail when a test says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.emulated import EmulatedCuda

#: CUDA_ERROR_UNKNOWN.
UNKNOWN = 999


class Faults:
    """Lets the nth driver call from now fail, of those that are made while it is `armed`."""

    def __init__(self, emu: EmulatedCuda, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls = self.nth = 0
        self.code = UNKNOWN
        self.armed = False
        original = CudaDriver.call

        def call(cuda: CudaDriver, name: str, *arguments: object) -> object:
            self.calls += self.armed
            if self.armed and self.calls == self.nth:
                # Contexts do not run out of memory.
                emu.fail("*", error=UNKNOWN if name.startswith("cuCtx") else self.code)
            return original(cuda, name, *arguments)

        monkeypatch.setattr(CudaDriver, "call", call)

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Count the calls of the body, and no others."""
        self.armed = True
        try:
            yield
        finally:
            self.armed = False
