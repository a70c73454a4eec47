"""The manager: which pool serves a request, modes, captures, and changes of the layout."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import index as as_index
from typing import TYPE_CHECKING, Any, SupportsIndex

from umfpy.core.cinterface import CInterface
from umfpy.core.extents import innermost
from umfpy.core.handle import Binding, Handle, allocation_of, cursor_of, rebind, watch, wrap
from umfpy.core.pages import page_of
from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument, NotSupported, UmfpyError
from umfpy.manager import captures
from umfpy.manager.budget import Budget
from umfpy.manager.captures import CaptureMode, Window, read_capture_mode
from umfpy.manager.configuration import MemoryConfiguration
from umfpy.manager.holdings import Holdings
from umfpy.manager.layout import Layout, build_layout
from umfpy.manager.modes import Mode, Persistence, read_mode, read_persistence
from umfpy.manager.options import PoolOptions
from umfpy.manager.paged import PagedPool
from umfpy.manager.persistent import PersistentPool
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.report import format_report
from umfpy.manager.serving import LOG, Server
from umfpy.manager.storage import Storage
from umfpy.manager.totals import manager_stats, manager_usage
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.manager.window import WindowPool
from umfpy.pools.base import ProviderPool
from umfpy.pools.stats import PoolStats
from umfpy.provider import Provider
from umfpy.units import format_size, parse_size

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.manager.cuda_graph import GraphCapture


class MemoryManager(ProviderPool):
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
        device, and the provider's granule.
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

    splits = False  # a slice's block is in another map than the manager's own

    def __init__(
        self,
        provider: Provider | ProviderPool,
        configuration: str | MemoryConfiguration | Iterable[object] = "sub_slices",
        properties: MemoryProperties | Mapping[str, Any] | None = None,
        name: str | None = None,
        persistent: Persistence | str = "enabled",
        spill: bool = False,
        *,
        budget: Budget | None = None,
        limit_bytes: int | str | None = None,
        thrifty: bool = True,
    ) -> None:
        # Before the base, which closes what was begun: a bad argument must leave nothing behind.
        chosen = MemoryConfiguration.of(configuration)
        self._persistence = read_persistence(persistent)
        super().__init__(provider, name=name, limit_bytes=limit_bytes, direct=True)
        self.properties = MemoryProperties.of(self.provider, properties)
        pools = chosen.build_pools(self.properties)
        self._configuration = chosen
        self._restore: Mode | None = None  # during a capture: the mode to go back to
        self._holdings = Holdings(self, budget, thrifty=thrifty)
        self._persistent = PersistentPool(
            self._holdings, self.properties, f"{self.name}/persistent"
        )
        self._server = Server(
            self._holdings, self._persistent, self._persistence, self._build(pools), spill=spill
        )
        self._without_handles = WindowPool(  # during captures
            self._holdings, self._persistent, self._server, f"{self.name}/window"
        )

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
        Constant time, whatever number of slices is live.
        """
        allocation, pool = self._server.allocate(size, 0, stream, False)
        handle = wrap(allocation, self)
        if pool is self._persistent:
            self._persistent.touch(allocation, watch(handle))
        if LOG.isEnabledFor(logging.DEBUG):
            # No handle among the arguments: records may be kept, and memory with them.
            LOG.debug(
                "%s: %d bytes from %s as slice %d", self.name, allocation.size, pool.name, handle.id
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
            `assigned` was given memory before.
        """
        allocation = allocation_of(reserved, self)
        rebind(reserved, assigned, self, as_index(cursor))
        if allocation.pool is self._persistent:
            self._persistent.touch(allocation, watch(assigned))
            self._persistent.move_pins(allocation, assigned)

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
        allocation = allocation_of(handle, self)
        return Storage(
            ptr=allocation.ptr,
            offset=allocation.ptr - page_of(allocation).base,
            size=allocation.size,
        )

    def resource(self, handle: Handle | Binding, start: int = 0, end: int | None = None) -> Storage:
        """Return the bytes of a slice from `start` up to `end`, None for its end.

        Raises
        ------
        StaleHandle
            As `storage`.
        InvalidArgument
            The range does not lie in the slice.
        """
        whole = self.storage(handle)
        last = whole.size if end is None else as_index(end)
        first = as_index(start)
        if not 0 <= first <= last <= whole.size:
            raise InvalidArgument(
                f"bytes {first} to {last} do not lie in a slice of {whole.size} bytes"
            )
        return Storage(whole.ptr + first, whole.offset + first, last - first)

    # The face of a pool.

    def allocate(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> Allocation:
        """Return `size` bytes without a handle; as `Pool.allocate`, and raises as `reserve`.

        What is allocated during a capture may be freed at any time: pins keep the memory.
        """
        if self.capturing:
            return self._without_handles.allocate(size, alignment, stream, zero)
        return self._server.allocate(size, alignment, stream, zero)[0]

    def malloc(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> int:
        """Return the address of `size` bytes, which `free` takes back; raises as `reserve`."""
        if self.capturing:
            return self._without_handles.malloc(size, alignment, stream, zero)
        return self._server.malloc(size, alignment, stream, zero)

    def free(
        self, ptr: int | None, size: SupportsIndex | None = None, stream: Stream = None
    ) -> None:
        """Free what `malloc` returned; as `Pool.free`."""
        if not ptr:
            return
        owner = self._owner_of(ptr)
        if owner is None:
            self.map.refuse(ptr, None if size is None else as_index(size))
        owner.free(ptr, size, stream)

    def c_interface(self) -> CInterface:
        """Refused: a C caller takes memory from one extent map, and a manager has several."""
        raise NotSupported(
            f"{self.name!r} has no functions for callers in C; give them a umfpy.Pool, which may "
            "have this manager as its provider"
        )

    def owns(self, address: int) -> bool:
        """Return whether `address` lies in a live slice of this manager."""
        owner = self._owner_of(address)
        return owner is not None and owner.owns(address)

    def _owner_of(self, address: int) -> PagedPool | WindowPool | None:
        """Return the pool of this manager whose page holds `address`."""
        extent = innermost(address) if isinstance(address, int) else None
        while extent is not None:
            owner = extent.map.owner()
            ours = isinstance(owner, (PagedPool, WindowPool))
            if ours and owner.holdings() is self._holdings:
                found: PagedPool | WindowPool = owner
                return found
            extent = extent.parent
        return None

    # Modes and captures.

    def mode(self, mode: Mode | str | None = None) -> str:
        """Set what requests are for from now on, ``"auto"`` or ``"persistent"``; return what is.

        During a capture only what is restored at its end changes.  With `persistent`
        ``"disabled"`` or ``"enforced"`` nothing does.
        """
        if mode is not None:
            wanted = read_mode(mode)
            with self._server.changing:
                if not self._persistence.honours_mode:
                    LOG.info(
                        "%s: mode %s is ignored: persistent memory is %s",
                        self.name,
                        wanted.value,
                        self._persistence.value,
                    )
                elif self._restore is not None:
                    self._restore = wanted
                else:
                    self._server.mode = wanted
                    LOG.info("%s: mode %s", self.name, wanted.value)
        return self._server.mode.value

    @property
    def capturing(self) -> bool:
        """Whether a capture is open."""
        return self._restore is not None

    def capture_begin(self, mode: CaptureMode | str = CaptureMode.RELAXED) -> None:
        """Open a capture: from now on requests are persistent, and nothing goes back.

        What is freed may be used again within the capture.  A second begin changes nothing.

        Parameters
        ----------
        mode
            What the driver's capture allows; see `CaptureMode`.  In a stricter mode than
            ``"relaxed"`` a request that no idle page fits raises CaptureWouldBreak, with nothing
            changed.

        Notes
        -----
        Begin before the driver's capture, and end after it.  No manager of the device gives
        memory back meanwhile, or waits; other pools do not know of captures.
        """
        window = Window(self.name, self.provider, read_capture_mode(mode))
        with self._server.changing:
            if self._restore is None:
                self._server.layout  # noqa: B018  (raises if there is none)
                self._restore = self._server.mode
                self._persistent.start_touching()
                captures.open_window(window)
                self._holdings.window = window
                LOG.info("%s: capture begins", self.name)
            self._server.mode = Mode.PERSISTENT

    def capture_end(self) -> list[Handle]:
        """Close the capture, and return a handle for each slice that was used in it.

        Keep them for as long as the captured graph may run: they keep the memory, even where it
        is bound to another handle afterwards.  Without a capture: [].
        """
        with self._server.changing:
            if self._restore is None:
                return []
            self._server.mode, self._restore = self._restore, None
            pins = self._persistent.end_touching(self)
            window, self._holdings.window = self._holdings.window, None
            LOG.info("%s: capture ends with %d slices", self.name, len(pins))
        if window is not None:
            captures.close_window(window)
        return pins

    @contextmanager
    def capturing_memory(self) -> Iterator[list[Handle]]:
        """Open a capture for a ``with``; the list that it yields holds the handles afterwards.

        If the body raises, the memory is given back, and the list stays empty.
        """
        pins: list[Handle] = []
        self.capture_begin()
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

        Explicit: all of them.  Else those that have been idle for their pool's period; that also
        happens by itself every so many requests.
        """
        if self._holdings.frozen:
            LOG.info("%s: cleanup waits for the end of the capture", self.name)
            return 0
        if not explicit:
            return self._server.look()
        released = self._holdings.release_idle()
        LOG.info("%s: cleanup gave %s back", self.name, format_size(released))
        return released

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Give idle pages back while `keep_bytes` stay held; as `Pool.trim`.

        Nothing during a capture.
        """
        keep = parse_size(keep_bytes)
        released = 0
        for pool in reversed(self._pools()):
            held = self._holdings.totals.reserved
            mine = pool.map.counters()["reserved"]
            released += pool.trim(max(keep - (held - mine), 0))
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
        with self._server.changing:
            layout = self._server.layout
            if self._holdings.frozen:
                LOG.info("%s: layout kept: a capture is open", self.name)
                return False
            self._server.install(None)  # requests wait, and those under way try again
            try:
                self.trim()
                live = sum(pool.stats().live_allocations for pool in layout.pools)
                if live:
                    LOG.info("%s: layout kept: %d slices live", self.name, live)
                    return False
                before, layout = layout, self._build(pools)
                self._configuration = chosen
                for pool in before.pools:
                    pool.retire()
                return True
            finally:
                self._server.install(layout)

    def _build(self, pools: Sequence[PoolOptions]) -> Layout:
        return build_layout(self._holdings, self.properties, self.name, pools)

    def _pools(self) -> tuple[PagedPool, ...]:
        return self._holdings.pools

    @property
    def configuration(self) -> MemoryConfiguration:
        """The configuration that is in use."""
        return self._configuration

    def synchronize(self) -> None:
        """Wait for the device; then memory freed on any stream may be used on all of them.

        Raises CaptureWouldBreak during a capture on the device.
        """
        captures.refuse_waiting(self.name, self.provider)
        for pool in self._pools():
            pool.synchronize()

    def close(self) -> None:
        """Give everything back and refuse further requests; closing twice is fine.

        Live slices stay valid.  A ResourceWarning reports them, and each page goes back with its
        last slice.
        """
        self._finish(warn=True)

    def _finish(self, *, warn: bool) -> None:
        if not hasattr(self, "_server") or self.map.foreign or self.closed:
            return
        with self._server.changing:
            self.capture_end().clear()
            self.map.shut()
            self._server.install(None)
            for pool in self._pools():
                pool.retire()
        left = self.memory_usage()
        if warn and left.number_allocs:
            warnings.warn(
                f"{self.name!r} was closed with {left.number_allocs} live slices of "
                f"{left.bytes_in_use} bytes; {left.bytes_reserved} bytes stay held for them",
                ResourceWarning,
                stacklevel=3,
            )

    def __del__(self) -> None:
        # Quietly: what was allocated without handles outlives the manager, as it does a pool.
        if sys.is_finalizing():
            return
        try:
            self._finish(warn=False)
        except UmfpyError as error:
            warnings.warn(
                f"{self.name!r} could not be closed: {error}", ResourceWarning, stacklevel=2
            )

    # Questions.

    def memory_usage(self) -> MemoryUsage:
        """Return what is live and held, over all pools; O(pages)."""
        return manager_usage(self.pool_usage(), self._holdings.totals)

    def pool_usage(self) -> list[PoolUsage]:
        """Return what each pool has, the persistent one first; O(pages)."""
        return [pool.usage() for pool in self._pools()]

    def report(self) -> str:
        """Return a report for people."""
        return format_report(
            self.name, self.memory_usage(), self._persistent.pages_by_size(), self.pool_usage()[1:]
        )

    def stats(self) -> PoolStats:
        """Return the statistics of all pools as those of one."""
        if not hasattr(self, "_server"):
            return super().stats()
        return manager_stats([pool.stats() for pool in self._pools()], self._holdings.totals)

    def reset_peaks(self) -> None:
        """Let every peak start again from what its number is now."""
        self._holdings.totals.reset()
        for pool in self._pools():
            pool.reset_peaks()

    def check(self, level: str = "full") -> None:
        """Check the invariants of every pool's extent map, and how they add up."""
        for pool in (*self._pools(), self._without_handles):
            pool.check(level)
        if level == "full":
            held = sum(pool.map.counters()["reserved"] for pool in self._pools())
            if held != self._holdings.totals.reserved:
                raise AssertionError("broken invariant: totals equal the sums over the pools")
