"""umfpy as the allocator of pyopencl.

>>> provider = umfpy.OpenCLProvider()                                       # doctest: +SKIP
>>> allocator = umfpy.integrations.pyopencl.allocator(umfpy.Pool(provider))  # doctest: +SKIP
>>> a = pyopencl.array.zeros(provider.queue, 1000, "f4", allocator=allocator)  # doctest: +SKIP

Such arrays, and all that are computed from them, lie in the pool, and go back to it when they are
dropped.
"""

from __future__ import annotations

from typing import Any

from umfpy.core.pool import Allocation, BasePool
from umfpy.errors import InvalidArgument
from umfpy.provider import Provider
from umfpy.providers.opencl import OpenCLProvider


class Allocator:
    """What pyopencl calls for memory; made by `allocator`.

    Attributes
    ----------
    pool
        Where the memory comes from.
    provider
        The pool's `OpenCLProvider`.
    queue
        The ``pyopencl.CommandQueue`` that orders the memory's use.
    """

    def __init__(self, pool: BasePool, queue: Any = None) -> None:
        if not isinstance(pool, BasePool):
            raise InvalidArgument(f"pyopencl needs a umfpy pool, not {pool!r}")
        self.pool = pool
        self.provider = opencl_provider(pool.provider)
        self.queue = self.provider.queue if queue is None else queue
        self._stream = self.provider.stream(self.queue)
        self._allocate = pool.allocate
        self._as_memory = self.provider.buffer

    def __call__(self, size: int) -> Any:
        """Return `size` bytes as a ``pyopencl.Buffer`` or a ``pyopencl.SVM``.

        Raises OutOfMemoryError, and InvalidArgument for 0 bytes, which no OpenCL object can have.
        """
        allocation = self._allocate(size, 0, self._stream)
        memory = self._as_memory(allocation.ptr, size)
        # Dropping what pyopencl works with drops the allocation.
        memory.umfpy_allocation = allocation
        return memory


def allocator(pool: BasePool, queue: Any = None) -> Allocator:
    """Return `pool` as the ``allocator`` of ``pyopencl.array``.

    Parameters
    ----------
    pool
        A pool over an `OpenCLProvider`, whatever lies between.
    queue
        The in-order ``pyopencl.CommandQueue`` that the arrays will be used on; if not given, the
        provider's own `queue`.

    Raises
    ------
    InvalidArgument
        The pool is not one of OpenCL memory, or the queue is of another context or out of order.

    Notes
    -----
    Memory of an array that was dropped is used again at once, by commands that come later in the
    same queue.  For arrays on another queue make another allocator, over the same pool if you
    like; where one array is used on two queues, wait for the second before you drop it.
    """
    return Allocator(pool, queue)


def buffer(allocation: Allocation) -> Any:
    """Return an allocation as an argument of kernels, which keeps the allocation alive.

    A ``pyopencl.Buffer`` of exactly its bytes where the provider's mode is ``"buffer"``, else a
    ``pyopencl.SVM``.  No memory is taken and none is copied.

    Raises
    ------
    InvalidArgument
        It is not OpenCL memory, or has no bytes.
    StaleHandle
        It was freed.
    """
    if not isinstance(allocation, Allocation):
        raise InvalidArgument(f"an Allocation is needed, not {allocation!r}")
    opencl_provider(allocation.provider)  # or refuse
    return allocation.buffer


def opencl_provider(provider: Provider) -> OpenCLProvider:
    """Return the `OpenCLProvider` at the bottom of pools and coarse providers.

    Raises
    ------
    InvalidArgument
        There is another one.
    """
    lowest: Any = provider
    while hasattr(lowest, "upstream"):
        lowest = lowest.upstream
    if not isinstance(lowest, OpenCLProvider):
        raise InvalidArgument(f"OpenCL memory is needed; {lowest!r} has none")
    return lowest
