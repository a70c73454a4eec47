from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

# Also for the processes that multiprocessing starts: they get this process's sys.path.
sys.path.insert(0, str(Path(__file__).parent))

import ipc_support as support

import umfpy.ipc


@pytest.fixture(params=["host", "cuda", "level_zero"])
def side(request: pytest.FixtureRequest) -> Iterator[support.Side]:
    """Memory that can be shared, with counters of what the provider below is asked for.

    What a test leaves allocated, exported or open in the driver fails it.
    """
    with mock.patch.dict(os.environ):
        yield from _side(request.param)


@pytest.fixture
def host() -> Iterator[support.Side]:
    """Shared host memory alone, where the kind of memory does not matter."""
    yield from _side("host")


def _side(kind: str) -> Iterator[support.Side]:
    side = support.make_side(kind)
    yield side
    gc.collect()
    umfpy.ipc.clear_cache()
    assert side.provider.live_count() == 0
    assert not side.leaks()
    side.provider.close()


@pytest.fixture
def peer(request: pytest.FixtureRequest) -> Iterator[support.Peer]:
    """A second process, with the same kind of memory as this test's side."""
    name = "side" if "side" in request.fixturenames else "host"
    other = support.Peer(request.getfixturevalue(name).kind)
    yield other
    other.close()


@pytest.fixture(autouse=True)
def _clean_cache() -> Iterator[None]:
    """Each test starts and ends without idle roots, and with the default limit."""
    yield
    umfpy.ipc.set_cache_limit(0)
    assert umfpy.ipc.cache_info().used == 0, "a test left memory of another process open"
    umfpy.ipc.set_cache_limit(64)
