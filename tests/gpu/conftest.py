"""Tests on real GPUs; without one they are skipped, with what is missing as the reason."""

from __future__ import annotations

import pytest

from umfpy import CudaProvider, DriverError, DriverUnavailable
from umfpy.providers.emulated.library import is_emulated


@pytest.fixture(scope="session")
def cuda() -> CudaProvider:
    """Memory of the first CUDA device of this machine."""
    if is_emulated():
        pytest.skip("no CUDA device: this process runs on the emulated driver")
    try:
        return CudaProvider(0)
    except DriverUnavailable as error:
        pytest.skip(f"no CUDA device: {error}")
    except DriverError as error:
        if error.code != 100:  # CUDA_ERROR_NO_DEVICE; whatever else is wrong must not be hidden
            raise
        pytest.skip(f"no CUDA device: {error}")
