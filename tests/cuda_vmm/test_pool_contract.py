"""The whole contract of pools, on pools over virtual memory."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest

from umfpy import (
    Capability,
    CudaVmmProvider,
    DriverUnavailable,
    HostProvider,
    LevelZeroVmmProvider,
    Pool,
)
from umfpy.pools.base import ProviderPool
from umfpy.provider import Provider
from umfpy.providers.emulated import emulate
from umfpy.testing import check_pool
from umfpy.testing.pool_subject import abilities

SOURCES: dict[str, tuple[Callable[[], Provider], str]] = {
    "cuda": (CudaVmmProvider, "cuda"),
    "cuda, chunks of 4 MiB": (lambda: CudaVmmProvider(chunk_size="4MiB"), "cuda"),
    "level_zero": (LevelZeroVmmProvider, "level_zero"),
    "host": (HostProvider, ""),
}

POOLS: dict[str, Callable[[Provider], ProviderPool]] = {
    "pool": functools.partial(Pool, virtual=True),
    "pool over pool": lambda provider: Pool(Pool(provider, virtual=True)),
    "plain pool": functools.partial(Pool, virtual=False),
}


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("source", SOURCES)
def test_contract(source: str, pool: str) -> None:
    make, driver = SOURCES[source]
    setup = functools.partial(emulate, driver, memory="4GiB") if driver else None
    try:
        emulated = setup() if setup else None
    except DriverUnavailable as absent:
        pytest.skip(str(absent))

    def factory() -> ProviderPool:
        return POOLS[pool](make())

    report = check_pool(factory, process_setup=setup, threads=4)

    report.raise_if_failed()
    if Capability.IPC in abilities(factory()):
        assert "pool_ipc" in {result.name for result in report.passed}
    if emulated is not None:
        assert emulated.leaks() == {}
