"""Physical memory of one device, without addresses."""

from __future__ import annotations

import contextlib
import threading
from bisect import bisect_right, insort

from umfpy.errors import DriverError, OutOfMemoryError
from umfpy.providers.vmm.driver import VmmDriver


class Handles:
    """Makes physical memory, and keeps some that is not mapped, for the next who needs it.

    With CUDA, to make and release 2 MiB costs more than to map them, and 128 MiB twice as much as
    cuMemAlloc of as many.  What is kept is counted in `reserved_bytes`, and is released before a
    request fails for lack of memory.

    Parameters
    ----------
    keep_bytes
        The most to keep.
    """

    def __init__(self, driver: VmmDriver, keep_bytes: int) -> None:
        self._driver = driver
        self._keep_bytes = keep_bytes
        self._lock = threading.Lock()
        self._kept: dict[int, list[int]] = {}  # bytes: handles, at least one
        self._sizes: list[int] = []  # of those, in order
        self._doomed: list[tuple[int, int]] = []  # handle, bytes: to be released, never used again
        self._kept_bytes = 0
        self._reserved_bytes = 0

    @property
    def reserved_bytes(self) -> int:
        """Bytes of the device that are held, mapped or kept."""
        return self._reserved_bytes

    @property
    def kept_bytes(self) -> int:
        """Bytes of those that are not mapped anywhere."""
        return self._kept_bytes

    def take(self, size: int) -> int:
        """Return a handle of `size` bytes whose contents are anything: a kept one, or a new one.

        Raises
        ------
        OutOfMemoryError
            The device has no more, also after everything kept was released.
        DriverError
            Whatever else the driver answered.
        """
        with self._lock:
            if size in self._kept:
                return self._pop(size)
        try:
            handle = self._driver.create(size)
        except OutOfMemoryError:
            if not self._release_kept(0):
                raise
            handle = self._driver.create(size)
        with self._lock:
            self._reserved_bytes += size
        return handle

    def take_kept(self, most: int) -> tuple[int, int] | None:
        """Return the largest kept handle of at most so many bytes, and its bytes."""
        with self._lock:
            at = bisect_right(self._sizes, most)
            if not at:
                return None
            size = self._sizes[at - 1]
            return self._pop(size), size

    def give(self, handle: int, size: int, *, reusable: bool = True) -> None:
        """Take back a handle that is mapped nowhere, to keep or to release.

        A driver that refuses is asked again by `trim`.
        """
        with self._lock:
            if reusable:
                self._keep(handle, size)
            else:
                self._doomed.append((handle, size))
        if not reusable or self._kept_bytes > self._keep_bytes:
            self._release_kept(self._keep_bytes)

    def trim(self, keep_bytes: int = 0) -> int:
        """Release what is kept beyond `keep_bytes`; return how many bytes went.

        Raises DriverError if the driver refuses; what is left is tried again next time.
        """
        with self._lock:
            before = self._reserved_bytes
            while victim := self._victim(keep_bytes):
                self._release(*victim)
            return before - self._reserved_bytes

    def _release_kept(self, keep_bytes: int) -> bool:
        """Do the same; return whether something went, and never mind what did not."""
        before = self._reserved_bytes
        with contextlib.suppress(DriverError, OutOfMemoryError):
            self.trim(keep_bytes)
        return self._reserved_bytes < before

    def _victim(self, keep_bytes: int) -> tuple[int, int] | None:
        """Return what to release next: the largest, which bring most for the call."""
        if self._doomed:
            return self._doomed[-1]
        if self._kept_bytes <= keep_bytes:
            return None
        size = self._sizes[-1]
        return self._kept[size][-1], size

    def _release(self, handle: int, size: int) -> None:
        self._driver.release(handle)
        if self._doomed and self._doomed[-1] == (handle, size):
            self._doomed.pop()
        else:
            self._pop(size)
        self._reserved_bytes -= size

    def _keep(self, handle: int, size: int) -> None:
        if size not in self._kept:
            self._kept[size] = []
            insort(self._sizes, size)
        self._kept[size].append(handle)
        self._kept_bytes += size

    def _pop(self, size: int) -> int:
        handles = self._kept[size]
        handle = handles.pop()
        if not handles:
            del self._kept[size]
            self._sizes.remove(size)
        self._kept_bytes -= size
        return handle
