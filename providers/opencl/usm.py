"""Unified shared memory."""

from __future__ import annotations

import contextlib
import weakref
from typing import Any

from umfpy.errors import UmfpyError
from umfpy.provider import Capability
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.extension import UsmFunctions
from umfpy.providers.opencl.pointers import PointerSource
from umfpy.providers.opencl.queues import Queues
from umfpy.providers.opencl.source import LARGEST_TYPE, zero_steps


class UsmSource(PointerSource):
    """clDeviceMemAllocINTEL, clHostMemAllocINTEL or clSharedMemAllocINTEL."""

    def __init__(
        self, driver: OpenCL, context: Any, queues: Queues, device: Any, memory_type: str
    ) -> None:
        super().__init__(driver, queues)
        self._functions = UsmFunctions(driver, device.platform)
        self._context = context
        self._device = device
        self._memory_type = memory_type
        self._live: set[int] = set()
        # pyopencl frees its objects when they are dropped; these are but addresses.
        end = weakref.finalize(self, _free_all, self._functions, context, queues, self._live)
        end.atexit = False
        if memory_type != "device":
            self.capabilities = Capability.HOST_ACCESS

    def _take(self, size: int) -> int:
        context, device = self._context.int_ptr, self._device.int_ptr
        of = () if self._memory_type == "host" else (device,)
        name = f"cl{self._memory_type.capitalize()}MemAllocINTEL"
        origin = self._functions.allocate(name, context, *of, None, size, LARGEST_TYPE)
        self._live.add(origin)
        return origin

    def _give(self, origin: int) -> None:
        """clMemBlockingFreeINTEL."""
        # Forgotten first: once freed, another thread may get the same address.
        self._live.discard(origin)
        try:
            self._functions.call("clMemBlockingFreeINTEL", self._context.int_ptr, origin)
        except UmfpyError:
            self._live.add(origin)
            raise

    def zero(self, queue: Any, ptr: int, size: int, *, wait: bool) -> None:
        """clEnqueueMemFillINTEL."""
        for at, length, pattern in zero_steps(ptr, size):
            arguments = (queue.int_ptr, at, pattern, len(pattern), length, 0, None, None)
            self._functions.call("clEnqueueMemFillINTEL", *arguments)
        self._driver.call(queue.finish if wait else queue.flush)

    def copy(self, queue: Any, dst: int, src: int, size: int, *, wait: bool) -> None:
        """clEnqueueMemcpyINTEL."""
        arguments = (queue.int_ptr, int(wait), dst, src, size, 0, None, None)
        self._functions.call("clEnqueueMemcpyINTEL", *arguments)
        if not wait:
            self._driver.call(queue.flush)


def _free_all(functions: UsmFunctions, context: Any, queues: Queues, live: set[int]) -> None:
    """Free what is left when its provider goes; nobody is there to be told of failures."""
    with contextlib.suppress(UmfpyError):
        if live:
            queues.finish()
        while live:
            functions.call("clMemBlockingFreeINTEL", context.int_ptr, live.pop())
