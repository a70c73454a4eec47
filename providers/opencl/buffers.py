"""Buffers, which have no addresses of their own."""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_right
from typing import Any, NamedTuple

from umfpy.errors import AlignmentError, InvalidArgument, UmfpyError
from umfpy.provider import Capability
from umfpy.providers.host.arguments import round_up
from umfpy.providers.opencl.addresses import Addresses
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.queues import Queues
from umfpy.providers.opencl.source import memory_at, zero_steps


class Root(NamedTuple):
    """A whole buffer, and the addresses that stand for it."""

    start: int
    size: int
    buffer: Any


class BufferSource:
    """clCreateBuffer; parts are clCreateSubBuffer, whose origin must be a multiple of `unit`.

    OpenCL leaves undefined what happens when a buffer is written through itself and through
    parts of it at the same time, so that everything here goes through a part that no other
    allocation has a share in.
    """

    capabilities = Capability.NONE

    def __init__(self, driver: OpenCL, context: Any, queues: Queues, unit: int) -> None:
        self._driver = driver
        self._context = context
        self._queues = queues
        self._unit = unit
        self._lock = threading.Lock()
        self._addresses = Addresses("opencl")
        #: Where the roots start, and the roots, both in order; replaced as one when they change,
        #: so that they are read without the lock.
        self._table: tuple[list[int], list[Root]] = [], []
        weakref.finalize(self, self._addresses.release_all).atexit = False

    def take(self, size: int, alignment: int) -> tuple[int, int]:
        """Make a buffer, have the driver back it now, and reserve addresses for it."""
        cl, call = self._driver.cl, self._driver.call
        buffer = call(cl.Buffer, self._context, cl.mem_flags.READ_WRITE, size)
        # Drivers may put the allocation off until the buffer is used; then it could fail later.
        undefined = cl.mem_migration_flags.CONTENT_UNDEFINED
        migrate = cl.enqueue_migrate_mem_objects
        call(call(migrate, self._queues.default, [buffer], undefined).wait)
        ptr = self._addresses.reserve(size, alignment)
        self._enter(Root(ptr, size, buffer))
        return ptr, ptr

    def give(self, origin: int) -> None:
        """clReleaseMemObject; the driver keeps the memory until queued commands are done."""
        root = self._leave(origin)
        try:
            self._driver.call(root.buffer.release)
        except UmfpyError:
            self._enter(root)
            raise
        self._addresses.release(origin)

    def zero(self, queue: Any, ptr: int, size: int, *, wait: bool) -> None:
        """clEnqueueFillBuffer."""
        part, offset = self._part(ptr, size)
        fill = self._driver.cl.enqueue_fill_buffer
        for at, length, pattern in zero_steps(offset, size):
            self._driver.call(fill, queue, part, pattern, at, length)
        self._driver.call(queue.finish if wait else queue.flush)

    def copy(self, queue: Any, dst: int, src: int, size: int, *, wait: bool) -> None:
        """clEnqueueCopyBuffer."""
        to, dst_offset = self._part(dst, size)
        of, src_offset = self._part(src, size)
        offsets = {"dst_offset": dst_offset, "src_offset": src_offset}
        copy = self._driver.cl.enqueue_copy
        self._driver.call(copy, queue, to, of, byte_count=size, **offsets)
        self._driver.call(queue.finish if wait else queue.flush)

    def write(self, queue: Any, dst: int, host: int, size: int) -> None:
        """clEnqueueWriteBuffer."""
        part, offset = self._part(dst, size)
        copy = self._driver.cl.enqueue_copy
        self._driver.call(copy, queue, part, memory_at(host, size), dst_offset=offset)

    def read(self, queue: Any, host: int, src: int, size: int) -> None:
        """clEnqueueReadBuffer."""
        part, offset = self._part(src, size)
        copy = self._driver.cl.enqueue_copy
        self._driver.call(copy, queue, memory_at(host, size), part, src_offset=offset)

    def argument(self, ptr: int, size: int) -> Any:
        """Return a ``pyopencl.Buffer``: clCreateSubBuffer.

        Raises
        ------
        AlignmentError
            Its origin would be no multiple of CL_DEVICE_MEM_BASE_ADDR_ALIGN.
        """
        root = self._root_of(ptr, size)
        if (ptr - root.start) % self._unit:
            raise AlignmentError(
                f"{ptr:#x} lies {ptr - root.start} bytes into its buffer; on this device "
                f"a part of a buffer must start at a multiple of {self._unit}"
            )
        return self._cut(root, ptr - root.start, size)

    def _part(self, ptr: int, size: int) -> tuple[Any, int]:
        """Return the least part with that range, and where the range starts in it."""
        root = self._root_of(ptr, size)
        offset = ptr - root.start
        first = offset & -self._unit
        last = min(round_up(offset + size, self._unit), root.size)
        return self._cut(root, first, last - first), offset - first

    def _enter(self, root: Root) -> None:
        with self._lock:
            starts, roots = self._table
            at = bisect_right(starts, root.start)
            self._table = (
                [*starts[:at], root.start, *starts[at:]],
                [*roots[:at], root, *roots[at:]],
            )

    def _leave(self, start: int) -> Root:
        with self._lock:
            starts, roots = self._table
            at = starts.index(start)
            self._table = starts[:at] + starts[at + 1 :], roots[:at] + roots[at + 1 :]
            return roots[at]

    def _cut(self, root: Root, origin: int, size: int) -> Any:
        try:
            return root.buffer.get_sub_region(origin, size)
        except self._driver.cl.Error as error:
            raise self._driver.failed(error.routine, error.code, str(error)) from error

    def _root_of(self, ptr: int, size: int) -> Root:
        starts, roots = self._table
        at = bisect_right(starts, ptr) - 1
        if at >= 0:
            root = roots[at]
            if ptr + size <= root.start + root.size:
                return root
        raise InvalidArgument(f"{size} bytes at {ptr:#x} are not in one buffer of this provider")
