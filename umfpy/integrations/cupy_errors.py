"""Out of memory, for callers that know CuPy's errors and for those that know umfpy's.

Importing this module needs CuPy.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from umfpy.errors import OutOfMemoryError

if TYPE_CHECKING:

    class _CupyOutOfMemoryError(MemoryError): ...

    class _CudaRuntimeError(RuntimeError): ...

else:
    _cuda = importlib.import_module("cupy.cuda")
    _CupyOutOfMemoryError = _cuda.memory.OutOfMemoryError
    _CudaRuntimeError = _cuda.runtime.CUDARuntimeError

#: cudaErrorMemoryAllocation.  CuPy's pools give their free blocks back and try again when they
#: see a CUDARuntimeError of this status, and only then.
_MEMORY_ALLOCATION = 2


class CupyOutOfMemoryError(OutOfMemoryError, _CupyOutOfMemoryError, _CudaRuntimeError):
    """The pool's report of what is missing, as an error of CuPy, of its runtime and of umfpy.

    ``status`` is the runtime's code; the other attributes are those of
    `umfpy.OutOfMemoryError`, which is also the cause.
    """

    def __init__(self, message: str, **numbers: Any) -> None:
        # None of the bases' own: each wants other arguments, and would call the next.
        self.args = (message,)
        self.__dict__.update(numbers)
        self.status = _MEMORY_ALLOCATION

    def __str__(self) -> str:
        return str(self.args[0])

    @classmethod
    def of(cls, error: OutOfMemoryError) -> CupyOutOfMemoryError:
        """Return the same report as an error of CuPy."""
        return cls(str(error), **vars(error))
