"""Pools over memory that does not exist."""

from __future__ import annotations

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import Capability, CoarseProvider, Pool, ProxyPool


@pytest.fixture
def provider() -> FakeProvider:
    """A provider of simulated addresses, without streams."""
    return FakeProvider()


@pytest.fixture
def streamed() -> FakeProvider:
    """A provider whose memory is worked on by streams."""
    return FakeProvider(capabilities=Capability.STREAMS | Capability.ZERO)


def _coarse(provider: FakeProvider) -> ProxyPool:
    return ProxyPool(CoarseProvider(provider))


KINDS = {
    "pool": Pool,
    "proxy": ProxyPool,
    "coarse": _coarse,
    "nested": lambda provider: Pool(Pool(provider)),
}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest):
    """Each way to put a pool on a provider."""
    return KINDS[request.param]
