"""Fixtures for virtual memory and driver pools, on emulated GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from cuda.bindings import driver

from umfpy.providers.cuda import CudaVmmProvider
from umfpy.providers.emulated import EmulatedCuda, emulate


@pytest.fixture
def emu() -> Iterator[EmulatedCuda]:
    """Two emulated GPUs of 4 GiB; a test that leaves something behind on them fails."""
    emulated = emulate("cuda", memory="4GiB", devices=2)
    before = emulated.leaks()
    yield emulated
    emulated.clear_faults()
    assert emulated.leaks() == before


@pytest.fixture
def provider(emu: EmulatedCuda) -> Iterator[CudaVmmProvider]:
    provider = CudaVmmProvider()
    yield provider
    assert provider.live_count() == 0
    provider.close()


@pytest.fixture
def read() -> Callable[..., bytes]:
    """What memory of a provider holds."""

    def read(provider: CudaVmmProvider, ptr: int, size: int) -> bytes:
        data = bytearray(size)
        provider.copy(data, ptr, size)
        return bytes(data)

    return read


@pytest.fixture
def context_stack(emu: EmulatedCuda) -> Callable[[], list[int]]:
    """Takes the thread's whole stack of contexts apart, and puts it together again."""

    def stack() -> list[int]:
        found = []
        while True:
            result, current = driver.cuCtxGetCurrent()
            assert not result
            if not int(current):
                break
            found.append(driver.cuCtxPopCurrent()[1])
        for context in reversed(found):
            assert not driver.cuCtxPushCurrent(context)[0]
        return [int(context) for context in found]

    assert not driver.cuInit(0)[0]
    return stack


@pytest.fixture(params=["none", "own and other"])
def callers_contexts(
    request: pytest.FixtureRequest, context_stack: Callable[[], list[int]]
) -> Iterator[list[int]]:
    """The contexts that the caller has current: none, or two, another device's on top."""
    ordinals = {"none": [], "own and other": [0, 1]}[request.param]
    for ordinal in ordinals:
        context = driver.cuDevicePrimaryCtxRetain(ordinal)[1]
        assert not driver.cuCtxPushCurrent(context)[0]
    stack = context_stack()
    yield stack
    assert context_stack() == stack
    for ordinal in ordinals:
        driver.cuCtxPopCurrent()
        driver.cuDevicePrimaryCtxRelease(ordinal)
