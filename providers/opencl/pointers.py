"""Memory that OpenCL itself names by address."""

from __future__ import annotations

import abc
from typing import Any

from umfpy.provider import Capability
from umfpy.providers.host.arguments import round_up
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.queues import Queues
from umfpy.providers.opencl.source import LARGEST_TYPE, memory_at


class PointerSource(abc.ABC):
    """Shared virtual memory and unified shared memory: a `Source` but for three methods."""

    capabilities = Capability.NONE

    def __init__(self, driver: OpenCL, queues: Queues) -> None:
        self._driver = driver
        self._queues = queues

    @abc.abstractmethod
    def _take(self, size: int) -> int:
        """Return the address of `size` bytes, aligned to `LARGEST_TYPE`."""

    @abc.abstractmethod
    def _give(self, origin: int) -> None:
        """Free what `_take` gave; no queue uses it."""

    @abc.abstractmethod
    def copy(self, queue: Any, dst: int, src: int, size: int, *, wait: bool) -> None:
        """Copy between addresses: its own, or the host's."""

    def take(self, size: int, alignment: int) -> tuple[int, int]:
        """Drivers need not align to more than their largest type: more is taken for that."""
        origin = self._take(size if alignment <= LARGEST_TYPE else size + alignment)
        return origin, round_up(origin, alignment)

    def give(self, origin: int) -> None:
        """Wait for the queues, and free.

        clSVMFree waits for nobody.  clMemBlockingFreeINTEL says that it does, but Intel's
        runtime for CPUs (2026.2) frees what a running kernel was given by
        clSetKernelArgSVMPointer, as pyopencl gives it.
        """
        self._queues.finish()
        self._give(origin)

    def write(self, queue: Any, dst: int, host: int, size: int) -> None:
        self.copy(queue, dst, host, size, wait=True)

    def read(self, queue: Any, host: int, src: int, size: int) -> None:
        self.copy(queue, host, src, size, wait=True)

    def argument(self, ptr: int, size: int) -> Any:
        """Return a ``pyopencl.SVM``: Intel's drivers take unified shared memory as one, too."""
        return self._driver.cl.SVM(memory_at(ptr, size))
