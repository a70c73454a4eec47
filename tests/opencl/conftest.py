"""Every test here runs on each kind of OpenCL memory that this machine has."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.opencl.support import ABSENT, KINDS, Kind
from umfpy import OpenCLProvider


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "kind" in metafunc.fixturenames:
        skip = pytest.mark.skip(reason=f"no OpenCL platform: {ABSENT}")
        kinds = [pytest.param(kind, id=str(kind)) for kind in KINDS]
        metafunc.parametrize("kind", kinds or [pytest.param(None, marks=skip, id="none")])


@pytest.fixture
def provider(kind: Kind) -> Iterator[OpenCLProvider]:
    """A provider; a test that leaves something allocated fails."""
    made = kind.provider()
    yield made
    assert made.live_count() == 0


@pytest.fixture
def any_provider() -> Callable[..., OpenCLProvider]:
    """Make providers of what the first device has."""
    if not KINDS:
        pytest.skip(f"no OpenCL platform: {ABSENT}")
    return OpenCLProvider
