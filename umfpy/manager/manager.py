"""The manager: handles of slices, modes, captures, and changes of the layout."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.arguments import check_flag, check_number
from umfpy.core.handle import Binding, Handle, allocation_of, cursor_of, rebind, watch, wrap
from umfpy.manager.choices import read_choice
from umfpy.manager.composite import CompositePool
from umfpy.manager.configuration import MemoryConfiguration
from umfpy.manager.errors import has_capture
from umfpy.manager.layout import build_layout
from umfpy.manager.log import LOG
from umfpy.manager.modes import Mode
from umfpy.manager.report import format_report
from umfpy.manager.storage import Storage, storage_of
from umfpy.pools.captures import CaptureMode, Window
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.cuda_graph import GraphCapture


class MemoryManager(CompositePool):
    """Slices of pages in the manner of CubeCL: handles, layouts, and memory for captured graphs.

    It is also a pool like any other: `allocate`, `malloc` and `free` go to the same pages, so
    that it can serve CuPy.

    Parameters
    ----------
    provider
        Where pages come from: a `Provider`, or a pool.
    configuration
        ``"sub_slices"``, ``"exclusive_pages"``, a `MemoryConfiguration`, or a list as of
        `MemoryConfiguration.explicit`.
    properties
        ``max_page_size`` and ``alignment``, in bytes or as text; by default a quarter of the
        device (128 MiB where nobody knows how large that is), and the provider's granule.  No
        preset takes more than a ``max_page_size`` that is given, or than a ``largest_request``
        given besides; by default a larger request has a page of its own.
    name
        For people; made from the provider's if not given.
    persistent
        ``"enabled"``: persistent memory where `mode` asks for it; ``"size-match"``: also for
        sizes that it has had; ``"disabled"``: during captures alone; ``"enforced"``: always.
    spill
        Whether a request that a pool at its cap refuses goes to the next that accepts it.
    budget
        A limit shared with other managers.
    limit_bytes
        The most bytes to hold, as number or text; None for no limit.
    thrifty
        Whether idle pages go back before the manager holds more than it ever did.

    Raises
    ------
    ConfigurationError
        The layout cannot be used; the message names entry, field, value and remedy.
    InvalidArgument
        Another argument makes no sense.

    Notes
    -----
    What happens is logged as ``umfpy.manager``: layouts, modes, explicit cleanup and persistent
    memory at INFO, single requests at DEBUG.  Any thread may call anything.
    """

    # Handles.

    def reserve(self, size: SupportsIndex, *, stream: Stream = None) -> Handle:
        """Return a handle of `size` bytes.

        Parameters
        ----------
        size
            Bytes; 0 is legal.
        stream
            The stream whose work uses the memory first; None for the default stream.

        Raises
        ------
        BufferTooBig
            No pool of the layout takes that much; also OutOfMemoryError.
        PoolCapacityExceeded
            The pool that takes it is at its cap; also OutOfMemoryError.
        OutOfMemoryError
            The provider has no page, or the limit or budget no room, after idle pages went back.
        InvalidArgument
            `size` is no size, or the manager is closed.

        Notes
        -----
        Constant time, whatever number of slices is live.  What sleeps since a `trim` wakes before
        a new page is asked for.
        """
        allocation = self._server.allocate(size, 0, stream, False)
        handle = wrap(allocation, self)
        if allocation.pool is self._persistent:
            self._pins.touch(allocation, watch(handle))
        if LOG.isEnabledFor(logging.DEBUG):
            # No handle among the arguments: records may be kept, and memory with them.
            LOG.debug(
                "%s: %d bytes from %s as slice %d",
                self.name,
                allocation.size,
                allocation.pool.name,
                handle.id,
            )
        return handle

    def bind(self, reserved: Handle | Binding, assigned: Handle, cursor: int = 0) -> None:
        """Make `assigned`, a fresh ``Handle()``, the identity of reserved memory.

        What is left of `reserved` and its clones is stale.

        Parameters
        ----------
        cursor
            The logical time of the stream, which `cursor` returns.

        Raises
        ------
        StaleHandle
            `reserved` has no memory of this manager.
        InvalidArgument
            `assigned` was given memory before, or `cursor` is no whole number.
        """
        time = check_number(cursor, "cursor", least=None)
        allocation = allocation_of(reserved, self)
        rebind(reserved, assigned, self, time)
        if allocation.pool is self._persistent:
            self._pins.touch(allocation, watch(assigned))
            self._pins.move(allocation, assigned)

    def cursor(self, handle: Handle | Binding) -> int:
        """Return the cursor that a handle's slice was bound at, 0 before; raises as `storage`."""
        return cursor_of(handle, self)

    def storage(self, handle: Handle | Binding) -> Storage:
        """Return where a handle's slice lies.

        Raises
        ------
        StaleHandle
            The handle was released, has no memory yet, or its memory was bound to another; or
            it is another manager's.
        """
        return storage_of(allocation_of(handle, self))

    def resource(self, handle: Handle | Binding, start: int = 0, end: int | None = None) -> Storage:
        """Return the bytes of a slice from `start` up to `end`, None for its end.

        Raises
        ------
        StaleHandle
            As `storage`.
        InvalidArgument
            The range does not lie in the slice, or is none of whole numbers.
        """
        whole = self.storage(handle)
        low = check_number(start, "start", least=None)
        return whole.part(low, whole.size if end is None else check_number(end, "end", least=None))

    # Modes and captures.

    def mode(self, mode: Mode | str | None = None) -> str:
        """Set what requests are for from now on, ``"auto"`` or ``"persistent"``; return what is.

        During a capture only what is restored at its end changes.  With `persistent`
        ``"disabled"`` or ``"enforced"`` nothing does.
        """
        if mode is not None:
            self._capturing.set_mode(read_choice(Mode, mode, "a mode"))
        return self._server.mode.value

    def capture_begin(self, mode: CaptureMode | str = CaptureMode.RELAXED) -> bool:
        """Open a capture: from now on requests are persistent, and nothing goes back.

        What is freed may be used again within the capture.  A second begin changes nothing, and
        returns False.

        Parameters
        ----------
        mode
            What the driver's capture allows; see `CaptureMode`.  In a stricter mode than
            ``"relaxed"`` a request that no idle page fits raises CaptureWouldBreak, with nothing
            changed.

        Notes
        -----
        Begin before the driver's capture, and end after it.  No pool of the device gives memory
        back meanwhile, or waits; who is at that just now in another thread is waited for first.
        """
        chosen = read_choice(CaptureMode, mode, "the mode of a capture")
        return self._capturing.begin(Window(self.name, self.provider, chosen))

    def capture_end(self) -> list[Handle]:
        """Close the capture, and return a handle for each slice that was used in it.

        Keep them for as long as the captured graph may run: they keep the memory, even where it
        is bound to another handle afterwards.  Without a capture: [].
        """
        return self._capturing.end(self)

    @contextmanager
    def capturing_memory(self) -> Iterator[list[Handle]]:
        """Open a capture for a ``with``; the list that it yields holds the handles afterwards.

        If the body raises, the memory is given back, and the list stays empty.  Raises
        InvalidArgument if a capture is open already: its pins would come too early.
        """
        pins: list[Handle] = []
        if not self.capture_begin():
            raise has_capture(self.name)
        try:
            yield pins
        except BaseException:
            self.capture_end().clear()
            raise
        pins += self.capture_end()

    def capture(
        self, stream: Stream, mode: CaptureMode | str = CaptureMode.RELAXED
    ) -> GraphCapture:
        """Return a context manager that captures a CUDA stream into a graph; see `GraphCapture`.

        Raises DriverUnavailable without cuda-bindings.
        """
        from umfpy.manager.cuda_graph import GraphCapture

        return GraphCapture(self, stream, mode)

    # Giving back.

    def cleanup(self, explicit: bool = False) -> int:
        """Give idle pages back, and return the bytes; nothing during a capture on the device.

        Explicit: all of them, those that sleep since a `trim` too, and what the provider keeps of
        such for reuse.  Else those that have been idle for their pool's period; that also happens
        by itself every so many requests.  Free parts of pages with live slices stay: see `trim`.
        """
        check_flag(explicit, "explicit")
        if self._holdings.frozen:
            LOG.info("%s: cleanup waits for the end of the capture", self.name)
            return 0
        if not explicit:
            return self._installed.look()
        released = self._holdings.release_idle()
        LOG.info("%s: cleanup gave %s back", self.name, format_size(released))
        return released

    def configure(self, configuration: str | MemoryConfiguration | Iterable[object]) -> bool:
        """Change the layout, and return True; False, with nothing changed, if it cannot be now.

        It cannot during a capture on the device, or while any slice of the present layout lives,
        be it an empty one.  Persistent slices neither hinder it nor move.  Idle pages go back.

        Raises
        ------
        ConfigurationError
            The layout cannot be used; nothing was changed.
        """
        chosen = MemoryConfiguration.of(configuration)
        pools = chosen.build_pools(self.properties)
        with self._installed.changing:
            changed = self._installed.replace(
                lambda: build_layout(self._holdings, self.properties, self.name, pools)
            )
            if changed:
                self._configuration = chosen
        return changed

    @property
    def configuration(self) -> MemoryConfiguration:
        """The configuration that is in use."""
        return self._configuration

    def report(self) -> str:
        """Return a report for people."""
        return format_report(
            self.name, self.memory_usage(), self._persistent.pages_by_size(), self.pool_usage()[1:]
        )
