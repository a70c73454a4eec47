"""A pool of slabs: ranges that are cut into equal cells."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NoReturn, SupportsIndex, TypeVar

from umfpy.arguments import check_kind, check_number
from umfpy.core.extents import innermost
from umfpy.core.pages import stream_number
from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.pools.base import ProviderPool
from umfpy.pools.rungs import Trimmed, check_rung, together
from umfpy.pools.slab_bucket import SlabBucket
from umfpy.pools.slab_callers import CallersPool
from umfpy.pools.slab_holdings import SlabHoldings
from umfpy.pools.slab_large import LargePool
from umfpy.pools.slab_limit import SharedLimit
from umfpy.pools.slab_requests import checked_address, checked_alignment, checked_size
from umfpy.pools.slab_shortage import reclaimers, shortage
from umfpy.pools.slab_sizes import SlabSizes, natural_alignment
from umfpy.pools.slab_stats import BucketStats, pool_stats
from umfpy.units import parse_size

if TYPE_CHECKING:
    from umfpy.core.cinterface import CInterface
    from umfpy.core.extents import ExtentMap
    from umfpy.core.pool import Allocation, Stream
    from umfpy.pools.stats import PoolStats
    from umfpy.provider import Provider

T = TypeVar("T")


class SlabPool(ProviderPool):
    """Serves each request with a cell of the next larger size, cut from a slab of such cells.

    The sizes of cells, the buckets, are 2^n and 1.5 * 2^n bytes in whole granules.  A request
    takes a cell off a slab of its bucket or, if none is free, a new slab from the provider; what
    is above `largest`, or cannot be aligned otherwise, goes straight through to the provider and
    straight back.  Memory freed on a stream is used again on that stream at once, and on others
    after the pool has waited for the device.

    A slab whose last cell was freed is kept while its bucket has fewer than `capacity` idle ones
    and `shared_limit` has room, else it goes back at once; after an `Allocation` was freed or
    dropped, with the next request to that bucket or the next question to the pool.

    Each bucket is an extent map of its own, whose extents are the slabs and whose blocks are the
    cells.  An allocation's ``pool`` is its bucket, whose ``manager`` is this pool; `find` tells
    this pool.

    Parameters
    ----------
    provider
        Where memory comes from: a `Provider`, or another pool.
    name
        For people; made from the provider's if not given.
    slab_size
        What a slab has at least, in bytes or as text: as many whole cells as reach it.
    largest
        The largest request that gets a cell.
    capacity
        How many idle slabs a bucket keeps.
    smallest
        The least size of a cell; None for the provider's granule.
    shared_limit
        A `SharedLimit` on what several pools keep idle together, or None.
    limit_bytes
        The most to hold from the provider, as of `Pool`; None for no limit.
    zero
        Whether every allocation reads as zero.

    Raises
    ------
    InvalidArgument
        A size, or the provider, is none that the pool can work with.
    """

    splits = False  # cells stay whole

    def __init__(
        self,
        provider: Provider | ProviderPool,
        *,
        name: str | None = None,
        slab_size: int | str = "64KiB",
        largest: int | str = "2MiB",
        capacity: int = 4,
        smallest: int | str | None = None,
        shared_limit: SharedLimit | None = None,
        limit_bytes: int | str | None = None,
        zero: bool = False,
    ) -> None:
        capacity = check_number(capacity, "capacity")
        if shared_limit is not None:
            check_kind(shared_limit, SharedLimit, "shared_limit", "a umfpy.SharedLimit")
        super().__init__(provider, name=name, zero=zero, limit_bytes=limit_bytes, direct=True)
        granule = self.provider.granule
        sizes = SlabSizes.of(
            smallest=granule if smallest is None else parse_size(smallest),
            largest=parse_size(largest),
            slab=parse_size(slab_size),
            granule=granule,
        )
        self._holdings = SlabHoldings(
            self, sizes, capacity=capacity, shared=shared_limit, zero=zero
        )
        self._growing = self._holdings.growing
        #: By place in `sizes.cells`, and whether slabs are aligned; made when first needed.
        self._buckets: dict[tuple[int, bool], SlabBucket] = {}
        self._large = LargePool(self._holdings, self.provider, f"{self.name}/large")
        self._owners: dict[ExtentMap, SlabBucket | LargePool] = {self._large.map: self._large}
        self._holdings.totals.follow(self._owners)
        self._callers: CallersPool | None = None
        if shared_limit is not None:
            shared_limit.join(self)

    # Requests.

    def allocate(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> Allocation:
        """Return `size` bytes as an `Allocation`; parameters and errors as of `Pool.allocate`.

        Constant time where a cell is free.
        """
        number, handle = checked_size(size), 0 if stream is None else stream_number(stream)
        place = self._choose(number, checked_alignment(alignment), zero)
        if isinstance(place, SlabBucket):
            clear = zero or self._holdings.zero
            return self._serve(number, partial(place.own, number, handle, clear))
        return self._serve(number, partial(place.allocate, number, alignment, handle, zero))

    def malloc(
        self,
        size: SupportsIndex,
        alignment: SupportsIndex = 0,
        stream: Stream = None,
        zero: bool = False,
    ) -> int:
        """Return the address of `size` bytes, which `free` takes back; as `allocate`."""
        number, handle = checked_size(size), 0 if stream is None else stream_number(stream)
        place = self._choose(number, checked_alignment(alignment), zero)
        if isinstance(place, SlabBucket):
            clear = zero or self._holdings.zero
            return self._serve(number, partial(place.lend, number, handle, clear))
        return self._serve(number, partial(place.malloc, number, alignment, handle, zero))

    def free(
        self, ptr: int | None, size: SupportsIndex | None = None, stream: Stream = None
    ) -> None:
        """Free what `malloc` returned; parameters and errors as of `Pool.free`.

        O(log extents): the address leads to its bucket.
        """
        if ptr is None or ptr == 0:
            return
        address = checked_address(ptr)
        owner = self._owner_of(address)
        if owner is None:
            self._refuse(address, size)
        owner.free(address, size, stream)

    def owns(self, address: int) -> bool:
        """Return whether `address` lies in a live allocation of this pool."""
        owner = self._owner_of(address)
        return owner is not None and owner.owns(address)

    def c_interface(self) -> CInterface:
        """Return C functions that ask this pool; they take the GIL, and pin the pool.

        What they give out is entered in a map of its own, by which C callers find it again:
        O(live allocations of such callers) moves of 24 bytes a call.
        """
        if self._callers is None:
            self._callers = CallersPool(self)
        return self._callers.c_interface()

    def _refuse(self, address: int, size: SupportsIndex | None) -> NoReturn:
        if self.map.foreign:
            self._refuse_if_closed()
        self.map.refuse(address, None if size is None else checked_size(size))

    def _refuse_if_closed(self) -> None:
        if self.closed:
            raise InvalidArgument(
                f"pool {self.name!r} is closed, or belongs to the process that forked this one; "
                "make a new pool (device memory does not survive a fork: start children with "
                "'spawn')"
            )

    def _choose(self, size: int, alignment: int, zero: bool) -> SlabBucket | LargePool:
        """Return who is to serve a request."""
        self._refuse_if_closed()
        if zero:
            self._refuse_zero()
        place = self._holdings.sizes.bucket_for(size, alignment)
        if place is None:
            return self._large
        aligned = alignment > self.provider.granule
        return self._buckets.get((place, aligned)) or self._make_bucket(place, aligned)

    def _make_bucket(self, place: int, aligned: bool) -> SlabBucket:
        cell = self._holdings.sizes.cells[place]
        with self._growing:
            bucket = self._buckets.get((place, aligned))
            if bucket is None:
                alignment = natural_alignment(cell) if aligned else self.provider.granule
                name = f"{self.name}/{cell}{'/aligned' if aligned else ''}"
                bucket = SlabBucket(self._holdings, self.provider, name, cell, alignment)
                self._owners = {**self._owners, bucket.map: bucket}
                self._holdings.totals.follow(self._owners)
                self._buckets = {**self._buckets, (place, aligned): bucket}
            return bucket

    def _members(self) -> list[SlabBucket | LargePool]:
        """Return the parts, those with the largest cells first."""
        buckets = sorted(self._buckets.items(), reverse=True)
        return [self._large, *(bucket for _, bucket in buckets)]

    def _owner_of(self, address: int) -> ProviderPool | None:
        """Return the part of this pool that gave out what encloses `address`."""
        # By the map, not by its owner: that is a weak reference, which is dead already when a
        # pool above this one is collected together with it, and gives its memory back.
        extent = innermost(address) if isinstance(address, int) else None
        while extent is not None:
            owner = self._owners.get(extent.map)
            if owner is not None:
                return owner
            extent = extent.parent
        return None

    # Running out of memory.

    def _serve(self, size: int, ask: Callable[[], T]) -> T:
        """Return what `ask` does; when memory has run out, get some back and ask again."""
        answer = self._ask(ask)
        if answer is None:
            # Without any lock of this pool: pools ask each other for memory.
            for reclaim in reclaimers(self, self._members(), size):
                if reclaim():
                    answer = self._ask(ask)
                    if answer is not None:
                        break
        if answer is None:
            raise shortage(self, size)
        self._holdings.totals.note()
        return answer

    def _ask(self, ask: Callable[[], T]) -> T | None:
        """Return what `ask` does, None if memory has run out."""
        with contextlib.suppress(OutOfMemoryError):
            return ask()
        return None

    # Giving back.

    def trim(
        self, keep_bytes: int | str = 0, *, rung: str = "free", keep_slabs: int | None = None
    ) -> Trimmed:
        """Have idle slabs go down, those of the largest cells first, and return the bytes.

        Parameters
        ----------
        keep_bytes
            Stop where less than this would stay ready.
        rung
            How far down, as of `Pool.trim`; a slab goes as a whole, and comes back from where it
            is when its bucket needs cells.
        keep_slabs
            Instead of `keep_bytes`, for the rung ``"free"``: how many idle slabs stay in each
            bucket.

        Waits for the device first; raises what the provider does, and what had not gone by then
        is kept.
        """
        check_rung(rung)
        if keep_slabs is None:
            return self._trim(parse_size(keep_bytes), rung=rung)
        if keep_slabs < 0 or keep_bytes or rung != "free":
            raise InvalidArgument(
                f"keep_slabs is from 0 on, and excludes keep_bytes and gentler rungs than 'free', "
                f"not {keep_slabs} with {keep_bytes!r} and {rung!r}"
            )
        went = sum(bucket.trim_slabs(keep_slabs) for bucket in list(self._buckets.values()))
        return Trimmed(went, "free" if went else None)

    def _trim(self, keep: int = 0, *, wait: bool | None = None, rung: str = "free") -> Trimmed:
        members = self._members()
        ready = sum(map(_ready_bytes, members))
        went = []
        for member in members:
            others = ready - _ready_bytes(member)
            hidden = member.map.counters()["hidden"]
            went.append(member._trim(max(keep - others, 0), wait=wait, rung=rung))
            # What was hidden before was not ready; what is purged only counts as gone.
            ready -= went[-1] - max(hidden - member.map.counters()["hidden"], 0)
        return together(went)

    def synchronize(self) -> None:
        super().synchronize()
        if not self.map.foreign:
            self._shed()

    def _wait_for_all(self) -> None:
        members = self._members()
        for member in members:
            member.map.retire()
        self.provider.synchronize()
        for member in members:
            member.map.retired()

    def _shed(self) -> None:
        for bucket in list(self._buckets.values()):
            bucket.shed()

    def close(self) -> None:
        """Give everything back and refuse further requests; closing twice is fine.

        Live allocations stay valid.  A ResourceWarning reports them, and each slab goes back with
        the last allocation in it.  Raises what the provider does; closing again tries again.
        """
        if self.map.foreign:
            return
        closed_before = self.closed
        self.map.shut()
        with self._growing:
            for member in self._members():
                member._end()
        if not closed_before:
            self._warn_of_live()

    def __del__(self) -> None:
        # The buckets close themselves, each when its last allocation is gone.
        return

    # Questions.

    def buckets(self) -> list[BucketStats]:
        """Return what each bucket has, by ascending size of cells; O(slabs).

        Cells for alignments above the granule are a bucket of their own, which follows the other
        one of its size once there is one.
        """
        self._shed()
        made = self._buckets
        found = []
        for place, cell in enumerate(self._holdings.sizes.cells):
            plain, aligned = made.get((place, False)), made.get((place, True))
            found.append(plain.describe() if plain else BucketStats(cell, self.provider.granule))
            if aligned:
                found.append(aligned.describe())
        return found

    @property
    def idle_bytes(self) -> int:
        """Bytes in idle slabs; O(buckets + idle slabs)."""
        return sum(
            slab.size for bucket in list(self._buckets.values()) for slab in bucket.idle_slabs()
        )

    @property
    def shared_limit(self) -> SharedLimit | None:
        """What bounds the idle slabs of several pools together."""
        return self._holdings.shared

    def stats(self) -> PoolStats:
        """Return the statistics of all buckets, and of what went straight through, as one."""
        if not self.map.foreign:
            self._shed()
        return pool_stats([member.stats() for member in self._members()], self._holdings.totals)

    def reset_peaks(self) -> None:
        """Let every peak start again from what its number is now."""
        for member in self._members():
            member.reset_peaks()
        self._holdings.totals.reset()

    def check(self, level: str = "full") -> None:
        """Check every bucket's extent map and slabs: ``"off"``, ``"cheap"`` or ``"full"``."""
        for member in self._members():
            member.check(level)


def _ready_bytes(member: ProviderPool) -> int:
    now = member.map.counters()
    return now["reserved"] - now["hidden"]
