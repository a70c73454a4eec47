"""The emulated CUDA driver, for Python."""

from __future__ import annotations

import ctypes
from pathlib import Path

from umfpy.providers.emulated import library as _library
from umfpy.providers.emulated.control import CallCounts, EmulatedDriver, LiveObject

__all__ = ["CallCounts", "EmulatedCuda", "LiveObject"]


class EmulatedCuda(EmulatedDriver):
    """The emulated CUDA driver of this process, as `umfpy.emulate` returns it.

    Kinds that `leaks` knows: allocations, host, registered, managed, pooled, reservations, handles,
    mappings, pools, exports, opens, pool_opens, contexts, streams, events, graphs,
    executable_graphs, user_objects.  Default pools, retained primary contexts and the nodes of
    graphs are in `live` only.
    """

    title = "CUDA"
    out_of_memory = 2  #: CUDA_ERROR_OUT_OF_MEMORY

    def __init__(self, path: Path, settings: str) -> None:
        super().__init__(path, settings, ctypes.RTLD_GLOBAL)
        self._driver.umfpyEmuIllegalAccesses.restype = ctypes.c_uint64
        self._driver.umfpyEmuIllegalAccesses.argtypes = []

    @classmethod
    def find(cls, force: bool) -> Path:
        """Return where the library is, if this process and this machine are free for it."""
        path = _library.cuda_library()
        _library.refuse_beside_real_gpu(force)
        _library.refuse_beside_real_driver(path)
        return path

    @property
    def illegal_accesses(self) -> int:
        """How many nodes of launched graphs met memory that was freed since they were made.

        Such a launch answers ``CUDA_ERROR_ILLEGAL_ADDRESS`` and touches nothing; `reset_calls` sets
        the count to 0.
        """
        return int(self._driver.umfpyEmuIllegalAccesses())

    def preload_environment(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which a new process runs on the same emulated driver."""
        return _library.preload_environment(self.library, self._settings, base)
