"""The whole contract on every kind of OpenCL memory: itself, cut up, and under three pools."""

from __future__ import annotations

import warnings

import pytest

from tests.opencl.support import Kind
from umfpy import Capability, CoarseProvider, Pool, Provider, ProxyPool
from umfpy.pools.nested import as_provider
from umfpy.testing import CHECKS, check_provider

WRAPPINGS = {
    "itself": lambda provider: provider,
    "coarse": CoarseProvider,
    "coarse over coarse": lambda provider: CoarseProvider(CoarseProvider(provider)),
    "pool": lambda provider: as_provider(Pool(provider)),
    "pool over pool over pool": lambda provider: as_provider(Pool(Pool(ProxyPool(provider)))),
}

#: What can only be seen from below, where all that is above counts as well.
UNSEEN = {"refusals_keep_state", "no_leaks", "native_error_per_thread"}


@pytest.mark.parametrize("wrapping", WRAPPINGS)
def test_contract(kind: Kind, wrapping: str) -> None:
    made: list[Provider] = []

    def factory() -> Provider:
        made.append(kind.provider())
        return WRAPPINGS[wrapping](made[-1])

    with warnings.catch_warnings():
        # One of the checks closes with memory in use, which coarse providers and pools report.
        warnings.simplefilter("ignore", ResourceWarning)
        capabilities = factory().capabilities
        report = check_provider(factory)
    report.raise_if_failed()
    assert Capability.ZERO | Capability.COPY | Capability.STREAMS in capabilities
    for skipped in report.skipped:
        missing = CHECKS[skipped.name].needs & ~capabilities
        assert missing or (wrapping != "itself" and skipped.name in UNSEEN), str(skipped)
