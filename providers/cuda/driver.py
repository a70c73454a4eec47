"""The CUDA driver API through cuda-python, with its results as umfpy's errors."""

from __future__ import annotations

import importlib
import os
import threading
from types import ModuleType
from typing import Any

from umfpy.errors import DriverError, DriverUnavailable, OutOfMemoryError, UmfpyError
from umfpy.provider import NativeError

#: CUresult values (cuda.h) that umfpy tells apart from other failures.
INVALID_VALUE = 1
OUT_OF_MEMORY = 2
NO_DEVICE = 100
INVALID_CONTEXT = 201
NOT_SUPPORTED = 801

_EMULATE = 'or emulate one with umfpy.emulate("cuda")'

_lock = threading.Lock()
_loaded: ModuleType | None = None
_forked = False


def _mark_forked() -> None:
    global _forked
    _forked = _loaded is not None


os.register_at_fork(after_in_child=_mark_forked)


def check_not_forked() -> None:
    """Raise DriverUnavailable in a process that was forked after CUDA had been initialised.

    The driver does not survive fork(2) (CUDA Programming Guide, Multi-Process Service and
    cuInit's CUDA_ERROR_NOT_INITIALIZED in such children).
    """
    if _forked:
        raise DriverUnavailable(
            "this process was forked after CUDA had been initialised, and CUDA does not work in "
            'such a child; start it with multiprocessing.get_context("spawn"), or use CUDA only '
            "in the child"
        )


def load() -> ModuleType:
    """Return ``cuda.bindings.driver``, initialised: cuInit.

    Raises
    ------
    DriverUnavailable
        The binding, the driver library or a device is missing, or this is a forked child; the
        message says what to install.
    """
    global _loaded
    check_not_forked()
    with _lock:
        if _loaded is None:
            bindings = _import()
            _initialise(bindings)
            _loaded = bindings
        return _loaded


def _import() -> ModuleType:
    try:
        return importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        raise DriverUnavailable(
            f"cuda-python's bindings are missing ({error}); install them with the extra that fits "
            'the driver: pip install "umfpy[cuda13]" or "umfpy[cuda12]"'
        ) from error


def _initialise(bindings: ModuleType) -> None:
    try:
        (result,) = bindings.cuInit(0)
    except RuntimeError as error:
        # What the bindings raise when libcuda.so.1 is not there.
        raise DriverUnavailable(
            f"no CUDA driver library, libcuda.so.1 ({error}); install NVIDIA's driver, {_EMULATE}"
        ) from error
    code = int(result)
    if code == NO_DEVICE:
        raise DriverUnavailable(
            "the CUDA driver sees no device; look at CUDA_VISIBLE_DEVICES and nvidia-smi, "
            + _EMULATE
        )
    if code:
        name, words = _words(bindings, result)
        raise DriverUnavailable(f"cuInit failed with {name} ({code}): {words}")


def _words(bindings: ModuleType, result: Any) -> tuple[str, str]:
    """Return the driver's name and text for a result: cuGetErrorName, cuGetErrorString."""
    texts = []
    for function in (bindings.cuGetErrorName, bindings.cuGetErrorString):
        _, text = function(result)
        texts.append(text.decode() if isinstance(text, bytes) else "")
    return texts[0], texts[1]


class CudaDriver:
    """The driver calls of one provider, which remembers each thread's last failure."""

    def __init__(self) -> None:
        self.bindings = load()
        self._local = threading.local()

    def call(self, name: str, *args: Any) -> Any:
        """Return what the driver function `name` gives besides its result: None, one value, or
        a tuple of several.

        Raises
        ------
        OutOfMemoryError
            CUDA_ERROR_OUT_OF_MEMORY.
        DriverError
            Any other result but success, with the driver's name and words for it.
        DriverUnavailable
            This is a forked child.
        """
        if _forked:
            check_not_forked()
        result, *values = getattr(self.bindings, name)(*args)
        if result:
            raise self._failed(name, result)
        if len(values) == 1:
            return values[0]
        return tuple(values) or None

    def last_error(self) -> NativeError | None:
        """Return the last failure in this thread, or None."""
        error: NativeError | None = getattr(self._local, "error", None)
        return error

    def _failed(self, call: str, result: Any) -> UmfpyError:
        code = int(result)
        name, words = _words(self.bindings, result)
        self._local.error = NativeError(call=call, code=code, name=name, message=words)
        if code == OUT_OF_MEMORY:
            return OutOfMemoryError(f"{call} failed with {name} ({code}): {words}", provider="cuda")
        return DriverError(call, code, name, words)
