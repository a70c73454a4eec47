"""Managers over host memory and over an emulated GPU."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator

import pytest

from tests.manager.device import Device
from tests.manager.support import PROPERTIES
from umfpy import CudaProvider, HostProvider, MemoryManager, Provider, emulate

Make = Callable[..., MemoryManager]


@pytest.fixture(params=["host", "cuda"])
def provider(request: pytest.FixtureRequest) -> Iterator[Provider]:
    """Host memory, or a device of the emulated driver; nothing may be left there."""
    if request.param == "host":
        yield HostProvider()
        return
    emu = emulate("cuda", memory="16GiB")
    before = emu.leaks()
    made = CudaProvider(0)
    yield made
    made.close()
    assert emu.leaks() == before


@pytest.fixture
def make(provider: Provider) -> Iterator[Make]:
    """Make managers with the properties of the specification; each is checked at the end."""
    made: list[MemoryManager] = []

    def build(configuration: object, **options: object) -> MemoryManager:
        options.setdefault("properties", PROPERTIES)
        manager = MemoryManager(provider, configuration, **options)
        made.append(manager)
        return manager

    yield build
    gc.collect()  # what a caught error's frames still hold
    for manager in made:
        manager.capture_end()
        manager.check("full")
        manager.cleanup(True)
        assert manager.memory_usage().bytes_reserved == 0, "a test drops its handles"
        manager.close()


@pytest.fixture
def gpu() -> Iterator[Device]:
    pytest.importorskip("cuda.bindings.driver", reason="cuda-python is not installed")
    leaks = emulate("cuda", memory="1GiB").leaks()
    made = Device()
    yield made
    gc.collect()
    assert made.emu.illegal_accesses == 0
    assert made.emu.live() == made.before
    made.close()
    assert made.emu.leaks() == leaks
