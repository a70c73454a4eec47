"""Copies of a provider would give the same memory back twice."""

from __future__ import annotations

import copy
import pickle

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import CoarseProvider, HostProvider, Pool, Provider
from umfpy.pools.nested import as_provider

PROVIDERS = {
    "host": HostProvider,
    "coarse": lambda: CoarseProvider(HostProvider()),
    "somebody's own": FakeProvider,
    "pool": lambda: as_provider(Pool(HostProvider())),
}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
@pytest.mark.parametrize("kind", PROVIDERS)
def test_a_provider_cannot_be_copied(kind: str, duplicate: object) -> None:
    provider: Provider = PROVIDERS[kind]()
    ptr = provider.alloc(1 << 16)
    name = type(provider).__name__
    with pytest.raises(TypeError, match=rf"a {name} cannot be copied.*ipc_handle\(\)"):
        duplicate(provider)
    provider.free(ptr, 1 << 16)
