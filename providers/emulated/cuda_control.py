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

    def __init__(self, path: Path, settings: str) -> None:
        super().__init__(path, settings, ctypes.RTLD_GLOBAL)
        self._driver.umfpyEmuIllegalAccesses.restype = ctypes.c_uint64
        self._driver.umfpyEmuIllegalAccesses.argtypes = []

    @property
    def illegal_accesses(self) -> int:
        """How many nodes of launched graphs met memory that was freed since they were made.

        Such a launch answers ``CUDA_ERROR_ILLEGAL_ADDRESS`` and touches nothing; `reset_calls` sets
        the count to 0.
        """
        return int(self._driver.umfpyEmuIllegalAccesses())

    def fail(self, name: str, nth: int = 1, error: int = 2, *, times: int = 1) -> None:
        """Let the `nth` call from now of function `name` answer `error`, without doing anything.

        Parameters
        ----------
        name
            Exported name, such as ``"cuMemAlloc_v2"``; ``"*"`` counts the calls of all functions.
        nth
            1 is the next call.
        error
            A ``CUresult``; 2 is ``CUDA_ERROR_OUT_OF_MEMORY``.
        times
            How many calls in a row fail.

        Raises
        ------
        InvalidArgument
            The driver has no such function, or a number makes no sense.
        CapacityExceeded
            64 faults are waiting already.
        """
        super().fail(name, nth, error, times=times)

    def preload_environment(self, base: dict[str, str] | None = None) -> dict[str, str]:
        """Return an environment in which a new process runs on the same emulated driver."""
        return _library.preload_environment(self.library, self._settings, base)
