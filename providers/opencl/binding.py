"""OpenCL through pyopencl, with its failures as umfpy's errors."""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from umfpy.errors import DriverError, DriverUnavailable, OutOfMemoryError, UmfpyError
from umfpy.provider import NativeError

#: Error codes (cl.h) that mean "no memory left of the kind that was asked for".
_EXHAUSTED = frozenset(
    {
        -4,  # CL_MEM_OBJECT_ALLOCATION_FAILURE
        -5,  # CL_OUT_OF_RESOURCES
        -6,  # CL_OUT_OF_HOST_MEMORY
        -61,  # CL_INVALID_BUFFER_SIZE: above CL_DEVICE_MAX_MEM_ALLOC_SIZE
    }
)

INSTALL_PLATFORM = (
    "install the OpenCL driver of the GPU, or PoCL, which makes a device of the CPU (Debian: "
    "apt-get install pocl-opencl-icd; PyPI: pocl-binary-distribution)"
)

_forked = False
_loaded: ModuleType | None = None


def _mark_forked() -> None:
    global _forked
    _forked = _loaded is not None


os.register_at_fork(after_in_child=_mark_forked)


def load() -> ModuleType:
    """Return the module ``pyopencl``.

    Raises
    ------
    DriverUnavailable
        It is not installed or does not load, or this process was forked from one that used it.
    """
    global _loaded
    _check_not_forked()
    if _loaded is None:
        try:
            _loaded = importlib.import_module("pyopencl")
        except ImportError as error:
            raise DriverUnavailable(
                f'pyopencl is missing ({error}); install it: pip install "umfpy[opencl]"'
            ) from error
    return _loaded


def _check_not_forked() -> None:
    """Raise DriverUnavailable in a forked child: OpenCL's worker threads stayed in its parent."""
    if _forked:
        raise DriverUnavailable(
            "this process was forked after OpenCL had been used, and OpenCL does not work in such "
            'a child; start it with multiprocessing.get_context("spawn"), or use OpenCL only in '
            "the child"
        )


class OpenCL:
    """The OpenCL calls of one provider, which remembers each thread's last failure."""

    def __init__(self) -> None:
        self.cl: Any = load()
        self._local = threading.local()

    def call(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Return what a function of pyopencl returns.

        Raises
        ------
        OutOfMemoryError
            The driver has no such memory.
        DriverError
            Any other failure, with OpenCL's name for it.
        DriverUnavailable
            This is a forked child.
        """
        if _forked:
            _check_not_forked()
        try:
            return function(*args, **options)
        except self.cl.Error as error:
            raise self.failed(error.routine, error.code, str(error)) from error

    def failed(self, call: str, code: int, words: str) -> UmfpyError:
        """Remember a failure for `last_error`, and return the error to raise for it."""
        name = f"CL_{self.cl.status_code.to_string(code, '%d')}"
        self._local.error = NativeError(call=call, code=code, name=name, message=words)
        if code in _EXHAUSTED:
            return OutOfMemoryError(f"{call} failed with {name} ({code})", provider="opencl")
        return DriverError(call, code, name, words)

    def last_error(self) -> NativeError | None:
        """Return the last failure in this thread, or None."""
        error: NativeError | None = getattr(self._local, "error", None)
        return error
