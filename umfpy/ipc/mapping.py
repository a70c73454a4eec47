"""Memory of another process, as it is open in this one."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from umfpy.arguments import check_number
from umfpy.closing import Closing
from umfpy.errors import InvalidArgument, StaleHandle
from umfpy.ipc.cache import OpenRoot, RootCache, raise_unclosed, warn_unclosed
from umfpy.ipc.handle import IpcHandle
from umfpy.provider import Provider


class IpcMapping(Closing):
    """A piece of another process's memory, mapped here by `open_ipc`.

    It is closed when it is dropped, by `close`, or at the end of a ``with``.  It keeps the
    mapping alive, and nothing in the other process: if that frees the memory, what is read and
    written here is undefined.

    Attributes
    ----------
    ptr
        The address here.
    size
        Bytes.
    provider
        What opened it: its `copy` and `zero` work on the memory.
    handle
        What it was opened with; to be passed on to a third process.
    """

    def __init__(
        self, handle: IpcHandle, provider: Provider, ptr: int, lease: Lease | None = None
    ) -> None:
        self.handle = handle
        self.provider = provider
        self.ptr = ptr
        self.size = handle.size
        self._lease = lease or Lease(None, None)
        self._dropped = weakref.finalize(self, self._lease.drop)
        # At exit the system unmaps everything, and the driver may be gone already.
        self._dropped.atexit = False

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._dropped.alive

    def close(self) -> None:
        """Close it; closing again is fine.

        The root stays open in the driver while other mappings use it, and for a while after;
        see `set_cache_limit`.

        Raises
        ------
        DriverError
            The driver refused to unmap a root.  The mapping is closed all the same, and the
            addresses stay taken.
        """
        if self._dropped.detach() is not None:
            self._lease.end()

    def copy_to_host(
        self, buffer: bytearray | memoryview | None = None, *, offset: int = 0
    ) -> bytearray | memoryview:
        """Copy from here into `buffer`, or into a new one of all that follows `offset` bytes.

        Returns the buffer; its length says how much is copied, and the copy is done.  Raises
        InvalidArgument beyond the end, StaleHandle when closed, NotSupported if the provider
        cannot copy.
        """
        offset = check_number(offset, "offset", least=None)
        target = bytearray(max(self.size - offset, 0)) if buffer is None else buffer
        length = _bytes_in(target)
        self._check_range(offset, length)
        self.provider.copy(target, self.ptr + offset, length)
        return target

    def copy_from_host(self, buffer: bytes | bytearray | memoryview, *, offset: int = 0) -> None:
        """Copy all of `buffer` to `offset` bytes into the memory; raises as `copy_to_host`."""
        offset = check_number(offset, "offset", least=None)
        length = _bytes_in(buffer)
        self._check_range(offset, length)
        self.provider.copy(self.ptr + offset, buffer, length)

    def _check_range(self, offset: int, length: int) -> None:
        if self.closed:
            raise StaleHandle(f"the mapping at {self.ptr:#x} is closed; open its handle again")
        if offset < 0 or offset + length > self.size:
            raise InvalidArgument(
                f"{length} bytes at {offset} do not lie in a mapping of {self.size} bytes"
            )

    def __reduce__(self) -> tuple[Callable[[IpcHandle], IpcMapping], tuple[Any, ...]]:
        from umfpy.ipc.opening import open_ipc

        return open_ipc, (self.handle,)

    def __repr__(self) -> str:
        state = f"of {self.handle.root.exporter}" if not self.closed else "closed"
        return f"<IpcMapping {self.size} bytes at {self.ptr:#x}, {self.provider.name} {state}>"


def _bytes_in(buffer: object) -> int:
    try:
        return memoryview(buffer).nbytes  # type: ignore[arg-type]  # whether it is one is the question
    except TypeError:
        raise InvalidArgument(
            f"a buffer is needed, such as a bytearray or a NumPy array, not {buffer!r}"
        ) from None


class Lease:
    """One use of an open root, given back once; of nothing, for memory of this process itself."""

    def __init__(self, cache: RootCache | None, root: OpenRoot | None) -> None:
        self._cache = cache
        self._root = root

    def end(self) -> None:
        """Give it back; raises what the driver answers."""
        if self._cache is not None and self._root is not None:
            raise_unclosed(self._cache.release(self._root))

    def drop(self) -> None:
        """Give it back in a destructor, which cannot raise: warn instead."""
        if self._cache is not None and self._root is not None:
            warn_unclosed(self._cache.release(self._root))
