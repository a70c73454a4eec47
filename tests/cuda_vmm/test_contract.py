"""The whole provider contract, on virtual memory and on driver pools."""

from __future__ import annotations

import functools

import pytest

from umfpy.provider import Capability
from umfpy.providers.cuda import CudaAsyncProvider, CudaVmmProvider
from umfpy.providers.emulated import emulate
from umfpy.testing import CHECKS, check_provider

PROVIDERS = {
    "vmm": CudaVmmProvider,
    "vmm of large chunks": functools.partial(CudaVmmProvider, chunk_size="4MiB", reserve="4MiB"),
    "vmm on the second device, not shared": functools.partial(
        CudaVmmProvider, 1, peers=[0], shareable=False
    ),
    "pool": CudaAsyncProvider,
    "default pool of the second device": functools.partial(
        CudaAsyncProvider, 1, pool="default", release_threshold="1GiB"
    ),
}

SETUP = functools.partial(emulate, "cuda", memory="4GiB", devices=2)


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_contract(name, emu):
    factory = PROVIDERS[name]
    provider = factory()
    capabilities = provider.capabilities
    provider.close()
    report = check_provider(factory, process_setup=SETUP)
    report.raise_if_failed()
    for skipped in report.skipped:
        assert CHECKS[skipped.name].needs & ~capabilities, str(skipped)
    if Capability.IPC in capabilities:
        passed = {result.name for result in report.passed}
        assert {"ipc_round_trip", "ipc_descriptors", "ipc_stale"} <= passed
