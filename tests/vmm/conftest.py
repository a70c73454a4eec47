"""Fixtures for virtual memory, on each emulated driver that has it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from umfpy.providers.cuda import CudaVmmProvider
from umfpy.providers.emulated import emulate
from umfpy.providers.emulated.control import EmulatedDriver
from umfpy.providers.level_zero import LevelZeroVmmProvider
from umfpy.providers.vmm.provider import VmmProvider

PROVIDERS: dict[str, type[VmmProvider]] = {
    "cuda": CudaVmmProvider,
    "level_zero": LevelZeroVmmProvider,
}


@pytest.fixture(params=list(PROVIDERS))
def driver(request: pytest.FixtureRequest) -> str:
    """The driver that a test runs on."""
    return request.param


@pytest.fixture
def emu(driver: str) -> Iterator[EmulatedDriver]:
    """An emulated GPU of 4 GiB; a test that leaves something behind on it fails."""
    with mock.patch.dict(os.environ):
        emulated = emulate(driver, memory="4GiB")
        before = emulated.leaks()
        yield emulated
        emulated.clear_faults()
        assert emulated.leaks() == before


@pytest.fixture
def provider(driver: str, emu: EmulatedDriver) -> Iterator[VmmProvider]:
    provider = PROVIDERS[driver]()
    yield provider
    assert provider.live_count() == 0
    provider.close()


@pytest.fixture
def read() -> Callable[..., bytes]:
    """What memory of a provider holds."""

    def read(provider: VmmProvider, ptr: int, size: int) -> bytes:
        data = bytearray(size)
        provider.copy(data, ptr, size)
        return bytes(data)

    return read
