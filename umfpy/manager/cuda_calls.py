"""The few driver calls that a capture needs, through cuda-python."""

from __future__ import annotations

import importlib
from typing import Any

from umfpy.errors import DriverError, DriverUnavailable, OutOfMemoryError

_OUT_OF_MEMORY = 2  # CUDA_ERROR_OUT_OF_MEMORY


class CudaCalls:
    """Calls ``cuda.bindings.driver``; raises DriverUnavailable where that is missing."""

    def __init__(self) -> None:
        try:
            self.bindings: Any = importlib.import_module("cuda.bindings.driver")
        except ImportError as error:
            raise DriverUnavailable(
                f"captures need cuda-python's bindings ({error}); pip install 'umfpy[cuda13]', or "
                "'umfpy[cuda12]' for drivers of CUDA 12"
            ) from error

    def __call__(self, name: str, *args: Any) -> Any:
        """Return what a driver function gives besides its result: None, or one value.

        Raises DriverError, or OutOfMemoryError for that answer.
        """
        result, *values = getattr(self.bindings, name)(*args)
        if result:
            raise self._failed(name, result)
        return values[0] if values else None

    def _failed(self, call: str, result: Any) -> DriverError | OutOfMemoryError:
        texts = []
        for function in (self.bindings.cuGetErrorName, self.bindings.cuGetErrorString):
            _, text = function(result)
            texts.append(text.decode() if isinstance(text, bytes) else "")
        if int(result) == _OUT_OF_MEMORY:
            return OutOfMemoryError(f"{call} failed with {texts[0]}: {texts[1]}", provider="cuda")
        return DriverError(call, int(result), *texts)
