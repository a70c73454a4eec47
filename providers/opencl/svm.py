"""Shared virtual memory."""

from __future__ import annotations

from typing import Any

from umfpy.errors import UmfpyError
from umfpy.provider import Capability
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.pointers import PointerSource
from umfpy.providers.opencl.queues import Queues
from umfpy.providers.opencl.source import LARGEST_TYPE, zero_steps


class SvmSource(PointerSource):
    """clSVMAlloc, coarse-grained, or fine-grained so that the host may touch it at any time."""

    def __init__(self, driver: OpenCL, context: Any, queues: Queues, *, fine: bool) -> None:
        super().__init__(driver, queues)
        cl = driver.cl
        self._context = context
        self._flags = cl.svm_mem_flags.READ_WRITE
        if fine:
            self._flags |= cl.svm_mem_flags.SVM_FINE_GRAIN_BUFFER
            self.capabilities = Capability.HOST_ACCESS
        #: What pyopencl frees when it is dropped.
        self._allocations: dict[int, Any] = {}

    def _take(self, size: int) -> int:
        make = self._driver.cl.SVMAllocation
        allocation = self._driver.call(make, self._context, size, LARGEST_TYPE, self._flags)
        self._allocations[allocation.svm_ptr] = allocation
        return int(allocation.svm_ptr)

    def _give(self, origin: int) -> None:
        """clSVMFree."""
        # Forgotten first: once freed, another thread may get the same address.
        allocation = self._allocations.pop(origin)
        try:
            self._driver.call(allocation.release)
        except UmfpyError:
            self._allocations[origin] = allocation
            raise

    def zero(self, queue: Any, ptr: int, size: int, *, wait: bool) -> None:
        """clEnqueueSVMMemFill."""
        fill = self._driver.cl.enqueue_svm_memfill
        for at, length, pattern in zero_steps(ptr, size):
            self._driver.call(fill, queue, self.argument(at, length), pattern, length)
        self._driver.call(queue.finish if wait else queue.flush)

    def copy(self, queue: Any, dst: int, src: int, size: int, *, wait: bool) -> None:
        """clEnqueueSVMMemcpy."""
        to, of = self.argument(dst, size), self.argument(src, size)
        self._driver.call(self._driver.cl.enqueue_copy, queue, to, of, is_blocking=wait)
        if not wait:
            self._driver.call(queue.flush)
