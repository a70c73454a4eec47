"""A pool whose memory lies in several pools of its own: what it is made of, and its face."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping
from operator import index as as_index
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from umfpy.arguments import check_flag, check_kind
from umfpy.core.cinterface import CInterface
from umfpy.core.pool import Allocation
from umfpy.errors import CaptureWouldBreak, InvalidArgument, NotSupported, UmfpyError
from umfpy.manager.budget import Budget
from umfpy.manager.capturing import Capturing
from umfpy.manager.choices import read_choice
from umfpy.manager.configuration import MemoryConfiguration
from umfpy.manager.holdings import Holdings
from umfpy.manager.installed import InstalledLayout
from umfpy.manager.layout import build_layout
from umfpy.manager.modes import Persistence
from umfpy.manager.owners import owner_of
from umfpy.manager.persistent import PersistentPool
from umfpy.manager.pins import Pins
from umfpy.manager.properties import MemoryProperties
from umfpy.manager.serving import Server
from umfpy.manager.totals import manager_stats, manager_usage
from umfpy.manager.usage import MemoryUsage, PoolUsage
from umfpy.manager.window import WindowPool
from umfpy.pools import captures
from umfpy.pools.base import ProviderPool
from umfpy.pools.rungs import Trimmed, check_rung, together
from umfpy.pools.stats import PoolStats
from umfpy.provider import Provider
from umfpy.units import parse_size

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class CompositePool(ProviderPool):
    """A pool like any other over persistent memory and a layout; for `MemoryManager`, which see.

    Its own extent map stays empty: the maps of its pools have the memory.
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
        chosen = MemoryConfiguration.of(configuration)
        persistence = read_choice(Persistence, persistent, "persistent")
        check_flag(spill, "spill")
        check_flag(thrifty, "thrifty")
        if budget is not None:
            what = "a umfpy.manager.Budget (for this manager alone: limit_bytes)"
            check_kind(budget, Budget, "budget", what)
        super().__init__(provider, name=name, limit_bytes=limit_bytes, direct=True)
        self.properties = MemoryProperties.of(self.provider, properties)
        options = chosen.build_pools(self.properties)
        self._configuration = chosen
        self._holdings = Holdings(self, budget, thrifty=thrifty)
        self._persistent = PersistentPool(
            self._holdings, self.properties, f"{self.name}/persistent"
        )
        layout = build_layout(self._holdings, self.properties, self.name, options)
        self._installed = InstalledLayout(self._holdings, self._persistent, layout)
        self._server = Server(
            self._holdings, self._persistent, persistence, self._installed, spill=spill
        )
        self._pins = Pins(self._persistent)
        self._without_handles = WindowPool(  # during captures
            self._holdings, self._persistent, self._pins, self._server, f"{self.name}/window"
        )
        self._capturing = Capturing(
            self._holdings, persistence, self._installed, self._server, self._pins
        )

    # Requests.

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
        return self._server.allocate(size, alignment, stream, zero)

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
        owner = owner_of(ptr, self._holdings)
        if owner is None:
            self.map.refuse(ptr, None if size is None else as_index(size))
        owner.free(ptr, size, stream)

    @property
    def capturing(self) -> bool:
        """Whether a capture is open."""
        return self._capturing.restore is not None

    def owns(self, address: int) -> bool:
        """Return whether `address` lies in a live slice of this manager."""
        owner = owner_of(address, self._holdings)
        return owner is not None and owner.owns(address)

    def c_interface(self) -> CInterface:
        """Refused: a C caller takes memory from one extent map, and a manager has several."""
        raise NotSupported(
            f"{self.name!r} has no functions for callers in C; give them a umfpy.Pool, which may "
            "have this manager as its provider"
        )

    # Giving back.

    def trim(self, keep_bytes: int | str = 0, *, rung: str = "free") -> Trimmed:
        """Have idle memory go down while `keep_bytes` stay ready or in use; as `Pool.trim`.

        Idle pages of every pool do, and of sliced pages also the parts that the provider can cut
        out.  What stays in the manager wakes when a request can use it, before a new page is
        asked for.  Nothing goes during a capture.
        """
        keep = parse_size(keep_bytes)
        check_rung(rung)
        pools = self._holdings.pools
        ready = sum(map(_ready_bytes, pools))
        went = []
        for pool in reversed(pools):
            mine = _ready_bytes(pool)
            hidden = pool.map.counters()["hidden"]
            went.append(pool.trim(max(keep - (ready - mine), 0), rung=rung))
            # What was hidden before was not ready; what is purged only counts as gone.
            ready -= went[-1] - max(hidden - pool.map.counters()["hidden"], 0)
        return together(went)

    def sweep(self) -> NoReturn:
        """Refused: the pages of a manager age by requests, each pool's at its own pace."""
        raise InvalidArgument(
            f"{self.name!r} has no policy for idle memory as a whole: give entries of its layout "
            "a dealloc_period, or call trim()"
        )

    def synchronize(self) -> None:
        """Wait for the device; then memory freed on any stream may be used on all of them.

        Raises CaptureWouldBreak during a capture on the device.
        """
        captures.refuse_waiting(self.name, self.provider)
        for pool in self._holdings.pools:
            pool.synchronize()

    def close(self) -> None:
        """Give everything back and refuse further requests; closing twice is fine.

        Live slices stay valid.  A ResourceWarning reports them, and each page goes back with its
        last slice.  Raises CaptureWouldBreak, with nothing changed, during the manager's own
        capture.
        """
        if self._capturing.restore is not None and not self.map.foreign:
            raise CaptureWouldBreak(
                f"{self.name!r} cannot be closed during its own capture, which would break: end "
                "the capture first"
            )
        self._finish(warn=True)

    def _finish(self, *, warn: bool) -> None:
        if self.map.foreign or self.closed:
            return
        with self._installed.changing:
            self._capturing.end(self).clear()
            self.map.shut()
            self._installed.retire()
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
        if sys.is_finalizing() or not self._made:
            return
        try:
            self._finish(warn=False)
        except UmfpyError as error:
            warnings.warn(
                f"{self.name!r} could not be closed: {error}", ResourceWarning, stacklevel=2
            )

    # Questions.

    def memory_usage(self) -> MemoryUsage:
        """Return what is live and held, over all pools; O(pages).

        The pools are read one after the other: what another thread moves between two of them
        meanwhile may be in both sums or in neither.  The peaks are of single moments.
        """
        return manager_usage(self.pool_usage(), self._holdings.totals)

    def pool_usage(self) -> list[PoolUsage]:
        """Return what each pool has, the persistent one first; O(pages)."""
        return [pool.usage() for pool in self._holdings.pools]

    def stats(self) -> PoolStats:
        """Return the statistics of all pools as those of one."""
        return manager_stats([pool.stats() for pool in self._holdings.pools], self._holdings.totals)

    def reset_peaks(self) -> None:
        """Let every peak start again from what its number is now."""
        self._holdings.totals.reset()
        for pool in self._holdings.pools:
            pool.reset_peaks()

    def check(self, level: str = "full") -> None:
        """Check the invariants of every pool's extent map, and how they add up."""
        pools = self._holdings.pools
        for pool in (*pools, self._without_handles):
            pool.check(level)
        if level == "full":
            held = sum(pool.map.counters()["reserved"] for pool in pools)
            if held != self._holdings.totals.reserved:
                raise AssertionError("broken invariant: totals equal the sums over the pools")


def _ready_bytes(pool: ProviderPool) -> int:
    now = pool.map.counters()
    return now["reserved"] - now["hidden"]
