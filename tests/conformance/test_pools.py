"""The whole contract of pools, on every pool and over every kind of provider."""

from __future__ import annotations

import functools
import itertools
import os
from unittest import mock

import pytest

from tests.opencl.support import ABSENT, KINDS
from umfpy import (
    Capability,
    CoarseProvider,
    CudaProvider,
    DriverUnavailable,
    FileProvider,
    FixedProvider,
    HostProvider,
    LevelZeroProvider,
    MemoryManager,
    Pool,
    ProxyPool,
    SharedLimit,
    SlabPool,
)
from umfpy.providers.emulated import emulate
from umfpy.testing import POOL_CHECKS, check_pool
from umfpy.testing.pool_subject import abilities

POOLS = {
    "pool": Pool,
    "proxy": ProxyPool,
    "slab": SlabPool,
    "slab that keeps nothing": functools.partial(SlabPool, capacity=0),
    "slab of large slabs": functools.partial(SlabPool, slab_size="256KiB", smallest="1KiB"),
    "slab within a limit": lambda p: SlabPool(p, shared_limit=SharedLimit("128KiB")),
    "manager": MemoryManager,
    "proxy over coarse": lambda p: ProxyPool(CoarseProvider(p)),
    "pool over coarse": lambda p: Pool(CoarseProvider(p)),
    "slab over coarse": lambda p: SlabPool(CoarseProvider(p)),
    "pool over pool over pool": lambda p: Pool(Pool(Pool(p))),
    "slab over pool over slab": lambda p: SlabPool(Pool(SlabPool(p))),
    "proxy over slab over proxy": lambda p: ProxyPool(SlabPool(ProxyPool(p))),
    "pool over manager": lambda p: Pool(MemoryManager(p)),
}

#: One of each way to cut memory up, for providers that have it all from the same core.
FEW = ("pool", "proxy", "slab", "manager")

_numbers = itertools.count()


def _file(folder):
    return FileProvider(folder / f"pool-{next(_numbers)}", keep=False)


#: What pools stand on; each takes a folder for files.
PROVIDERS = {
    "host private": lambda folder: HostProvider(),
    "host shared": lambda folder: HostProvider(shared=True),
    "file": _file,
    "fixed": lambda folder: FixedProvider(bytearray(4 << 20)),
    "cuda device": lambda folder: CudaProvider(),
    "cuda host": lambda folder: CudaProvider(memory_type="host"),
    "level_zero device": lambda folder: LevelZeroProvider(),
    "level_zero shared": lambda folder: LevelZeroProvider(memory_type="shared"),
    **{f"opencl {kind}": lambda folder, kind=kind: kind.provider() for kind in KINDS},
}

CASES = [
    pytest.param(provider, pool, id=f"{provider}-{pool}")
    for provider in PROVIDERS
    for pool in (POOLS if provider == "host shared" else FEW)
]

#: What the second process does first.
CUDA = functools.partial(emulate, "cuda", memory="4GiB")
LEVEL_ZERO = functools.partial(emulate, "level_zero", memory="4GiB")


@pytest.fixture
def emulated(request):
    """What the second process loads; this one has it, and nothing is left behind on it."""
    provider = request.getfixturevalue("provider")
    setup = {"cuda": CUDA, "level_zero": LEVEL_ZERO}.get(provider.split()[0])
    if setup is None:
        yield None
        return
    with mock.patch.dict(os.environ):
        try:
            emu = setup()
        except DriverUnavailable as absent:
            pytest.skip(str(absent))
        before = emu.live()
        yield setup
        assert emu.live() == before


@pytest.fixture
def provider(request):
    return request.param


@pytest.mark.parametrize(("provider", "pool"), CASES, indirect=["provider"])
def test_contract(provider, pool, emulated, tmp_path):
    def factory():
        return POOLS[pool](PROVIDERS[provider](tmp_path))

    report = check_pool(factory, process_setup=emulated, threads=4)
    report.raise_if_failed()
    able = abilities(factory())
    for skipped in report.skipped:
        check = POOL_CHECKS[skipped.name]
        assert check.needs & ~able or check.unless & able, str(skipped)
    if Capability.IPC in able:
        assert "pool_ipc" in {result.name for result in report.passed}


@pytest.mark.skipif(not KINDS, reason=f"no OpenCL platform: {ABSENT}")
def test_opencl_is_here():
    assert any(name.startswith("opencl") for name in PROVIDERS)
