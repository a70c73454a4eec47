"""The whole provider contract, on every kind of Level Zero memory."""

from __future__ import annotations

import functools

import pytest

from umfpy.provider import Capability
from umfpy.providers.emulated import emulate
from umfpy.providers.level_zero import LevelZeroProvider, LevelZeroVmmProvider
from umfpy.testing import CHECKS, check_provider

PROVIDERS = {
    "device": LevelZeroProvider,
    "device by blocking free": functools.partial(LevelZeroProvider, free_policy="blocking"),
    "device by deferred free": functools.partial(LevelZeroProvider, free_policy="deferred"),
    "second device, resident elsewhere": functools.partial(
        LevelZeroProvider, 1, resident_devices=[0, 2]
    ),
    "host": functools.partial(LevelZeroProvider, 0, "host"),
    "shared": functools.partial(LevelZeroProvider, 0, "shared"),
    "virtual memory": LevelZeroVmmProvider,
}

SETUP = functools.partial(emulate, "level_zero", devices=3)


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_contract(name, emu):
    factory = PROVIDERS[name]
    provider = factory()
    capabilities = provider.capabilities
    provider.close()
    report = check_provider(factory, process_setup=SETUP)
    report.raise_if_failed()
    assert len(report.passed) > 20
    for skipped in report.skipped:
        assert CHECKS[skipped.name].needs & ~capabilities, str(skipped)
    if Capability.IPC in capabilities:
        passed = {result.name for result in report.passed}
        assert {"ipc_round_trip", "ipc_descriptors", "ipc_stale"} <= passed
