# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""The extent map as Python sees it: with a lock, errors, and extents that know their providers."""

import operator
import os
import weakref

cimport cython
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free

from umfpy.core.check cimport map_check
from umfpy.core.extent_map cimport (
    map_add_extent,
    map_alloc,
    map_alloc_extent,
    map_clear,
    map_free,
    map_init,
    map_largest_free,
    map_locate,
    map_merge,
    map_metadata_bytes,
    map_remove_extent,
    map_restamp,
    map_retag,
    map_settle,
    map_split,
    map_tag,
    map_unite,
)
from umfpy.core.lock cimport lock_enter, lock_release
from umfpy.core.numbers cimport ANY_SIZE, NO_SIZE, as_u64
from umfpy.core.registry cimport Extent, innermost, register, unregister
from umfpy.core.spans cimport Span, copy_free, copy_spans
from umfpy.core.structs cimport (
    DONE,
    FIRST_STREAM,
    HOSTS,
    MAX_EXTENTS,
    NO_HOST_MEMORY,
    TAG_MASK,
    TOO_MANY_EXTENTS,
    TOO_MANY_STREAMS,
    UNINDEXED,
    Block,
    Counters,
    Status,
    extent_of,
    is_backed,
    is_used,
    requested_of,
    span_of,
    tag_of,
)
from umfpy.core.structs cimport (  # each by another name: Python knows them by these
    COMING as TAG_COMING,
    HIDDEN as TAG_HIDDEN,
    LEAVING as TAG_LEAVING,
    RETIRING as TAG_RETIRING,
    SAFE as TAG_SAFE,
    UNBACKED as TAG_UNBACKED,
)

from umfpy.core import registry
from umfpy.core.registry import innermost
from umfpy.errors import AlignmentError, CapacityExceeded, InvalidArgument, StaleHandle

cdef enum:
    MAX_GRANULE = 1 << 30  # what is left over of one fits into `Block.slack`

#: The states of free memory; `ExtentMap.retag` moves ranges between all but RETIRING.
SAFE = TAG_SAFE
RETIRING = TAG_RETIRING
HIDDEN = TAG_HIDDEN
UNBACKED = TAG_UNBACKED
LEAVING = TAG_LEAVING
COMING = TAG_COMING

STATES = ("SAFE", "RETIRING", "HIDDEN", "UNBACKED", "LEAVING", "COMING")  # [tag] for people

# Both are found here, too.  A type that is cimported is no attribute by itself.
globals()["Extent"] = registry.Extent

_maps = weakref.WeakSet()


def _abandon_maps():
    """In a forked child: no map of the parent's may give out or take back, or wait for a lock."""
    for space in list(_maps):
        (<ExtentMap>space).abandon()


os.register_at_fork(after_in_child=_abandon_maps)


@cython.no_gc_clear  # whoever holds the map may use it until it goes
cdef class ExtentMap:
    """Sub-allocation of extents: who owns which addresses, in one structure.

    Parameters
    ----------
    granule
        The unit in bytes, a power of two; every block is a multiple of it.
    owner
        The pool or provider that this map serves; held weakly.
    ordered
        Whether memory freed on one stream has to be kept from others until `retired`.
    scan
        How many blocks of a bin are compared for the closest fit: 0 takes the first of a bin
        where all fit.
    low_from
        Requests of at least so many bytes get the lowest address that fits; 0 for none.

    Every method takes the map's own lock for its short time, and may be called by any thread.
    """

    def __cinit__(
        self, granule, owner, *, bint ordered=False, uint32_t scan=8, uint64_t low_from=0
    ):
        if not 1 <= granule <= MAX_GRANULE or granule & (granule - 1):
            raise InvalidArgument(
                f"a granule must be a power of two up to {MAX_GRANULE}, not {granule}"
            )
        self.granule = granule
        self.owner = weakref.ref(owner)
        self.extents = {}
        if map_init(&self.m, granule.bit_length() - 1, ordered, scan, low_from) != DONE:
            raise MemoryError("no host memory for an extent map")
        _maps.add(self)

    def __dealloc__(self):
        map_clear(&self.m)

    cdef raise_status(self, Status status):
        if status == TOO_MANY_EXTENTS:
            raise CapacityExceeded(f"a pool holds at most {MAX_EXTENTS} extents; use larger ones")
        if status == TOO_MANY_STREAMS:
            raise CapacityExceeded(
                f"more than {TAG_MASK - FIRST_STREAM + 1} streams hold memory of this pool; free "
                "some"
            )
        if status == NO_HOST_MEMORY:
            raise MemoryError("no host memory for the pool's metadata")

    # Extents.

    def add(self, base, size, provider, *, bint backed=True, bint fresh=False):
        """Take over `size` bytes at `base` as one free block, and return the Extent.

        Ends that fill no granule are left out, but go back to the provider with the rest.  With
        `backed` false these are addresses without memory: the block is UNBACKED.  `fresh` says
        that all of it reads as zero now, so that whoever wants zeros finds them there.
        Raises InvalidArgument if the range overlaps what is managed already, CapacityExceeded or
        MemoryError; then the memory is still the caller's.
        """
        cdef Extent extent = self._new_extent(base, size, provider)
        self._enter(extent, TAG_SAFE if backed else TAG_UNBACKED, fresh, NULL, 0, 0, False)
        return extent

    def add_used(
        self, base, size, requested, provider, stream=0, *, bint index=False, bint fresh=False
    ):
        """Take over a range that is one used block; return the block.  `fresh`, errors: see `add`.
        """
        cdef Extent extent = self._new_extent(base, size, provider)
        cdef uint32_t block = 0
        self._enter(extent, TAG_SAFE, fresh, &block, requested, stream, index)
        return block

    cdef Extent _new_extent(self, base, size, provider):
        cdef Extent extent = Extent.__new__(Extent)
        mask = self.granule - 1
        base = operator.index(base)
        size = operator.index(size)
        extent.base = base
        extent.size = size
        extent.provider = provider
        extent.map = self
        extent.m = &self.m
        if base < 0 or size <= 0 or base + size >= 1 << 64 or (
            (base + size & ~mask) <= (base + mask & ~mask)
        ):
            raise InvalidArgument(
                f"{size} bytes at {base:#x} hold no whole granule of {self.granule} bytes, or "
                "reach beyond 2^64"
            )
        return extent

    cdef _enter(
        self, Extent extent, uint32_t state, bint fresh, uint32_t* block, uint64_t requested,
        uint64_t stream, bint index
    ):
        cdef Status status = DONE
        cdef uint32_t tag = 0
        cdef uint32_t place = 0
        cdef uint64_t mask = <uint64_t>self.granule - 1
        cdef uint64_t low = (<uint64_t>extent.base + mask) & ~mask
        cdef uint64_t high = (<uint64_t>extent.base + <uint64_t>extent.size) & ~mask
        register(extent)
        lock_enter(&self.m.lock)
        if block != NULL:  # a free extent is no stream's
            status = map_tag(&self.m, stream, &tag)
        if status == DONE:
            status = map_add_extent(&self.m, low, high - low, state, fresh, &place)
        if status == DONE and block != NULL:
            status = map_alloc_extent(&self.m, place, requested, tag, index, block)
            if status != DONE:
                map_remove_extent(&self.m, place)
        lock_release(&self.m.lock)
        if status != DONE:
            unregister(extent)
            self.raise_status(status)
        extent.index = place
        self.extents[place] = extent

    def remove(self, Extent extent, *, bint mixed=False):
        """Forget a wholly free extent and return True; False if it is in use (again).

        `mixed`: also one whose free blocks are in several states, which `restore` has forgotten.
        """
        cdef bint removed = False
        cdef uint32_t tag
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        if self.extents.get(extent.index) is extent and (
            self.m.extents[extent.index].wholly_free
            or (mixed and map_unite(&self.m, extent.index))
        ):
            tag = tag_of(&self.m, self.m.extents[extent.index].first)
            extent.left_as = tag if tag == TAG_HIDDEN or tag == TAG_UNBACKED else TAG_SAFE
            map_remove_extent(&self.m, extent.index)
            removed = True
        lock_release(&self.m.lock)
        if removed:
            del self.extents[extent.index]
            unregister(extent)
        return removed

    def restore(self, Extent extent not None, *, bint waited=True):
        """Undo `remove`: the extent is one free block again, of the state that it had.

        What a stream had freed is everybody's, since whoever removes an extent waits for the
        device; with `waited` False it is RETIRING, if there are two streams.  Raises as `add` does.
        """
        cdef uint32_t state = extent.left_as
        if extent.map is not self or self.extents.get(extent.index) is extent:
            raise InvalidArgument(f"{extent!r} was not removed from this map")
        if state == TAG_SAFE and not waited and self.m.streams > 1:
            state = TAG_RETIRING
        self._enter(extent, state, False, NULL, 0, 0, False)

    # An extent that is one used block goes back while the block stays used, so that a provider
    # that fails changes nothing: `detach`, the provider's free, then `drop` or `attach`.

    def detach(self, uint32_t block, uint32_t generation):
        """Take the extent of a used block out of the registry, and return it.

        Raises StaleHandle if the block is not the one of that generation, InvalidArgument if
        another pool lives in it.
        """
        cdef bint live
        cdef bint hosts
        cdef uint32_t index
        cdef Extent extent
        lock_enter(&self.m.lock)
        live = is_used(&self.m, block) and self.m.blocks[block].generation == generation
        index = extent_of(&self.m, block)
        hosts = self.m.blocks[block].slack >> 31
        lock_release(&self.m.lock)
        extent = <Extent?>self.extents[index] if live else None
        if extent is None or not extent.registered:  # or another thread is at it
            raise StaleHandle(f"block {block} was freed already")
        if hosts:
            raise InvalidArgument(
                f"{extent.base:#x} holds the memory of another pool; close that pool first"
            )
        unregister(extent)
        return extent

    def attach(self, Extent extent):
        """Undo `detach`."""
        register(extent)

    def drop(self, Extent extent, uint32_t block):
        """Forget a detached extent, whose memory is gone, and its used block."""
        lock_enter(&self.m.lock)
        map_free(&self.m, block, TAG_SAFE)
        map_settle(&self.m)
        map_remove_extent(&self.m, extent.index)
        lock_release(&self.m.lock)
        del self.extents[extent.index]

    def free_extents(self, *, backed=None):
        """Return the extents that are one free block, in no particular order.

        Such that have memory, if `backed` is true, or have none, if it is false.
        """
        cdef uint32_t index
        cdef bint either = backed is None
        cdef bint wanted = bool(backed)
        indices = []
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        index = self.m.extents_free
        while index:
            if either or wanted == is_backed(tag_of(&self.m, self.m.extents[index].first)):
                indices.append(index)
            index = self.m.extents[index].next_free
        lock_release(&self.m.lock)
        return [self.extents[i] for i in indices if i in self.extents]

    def extent_of(self, uint32_t block):
        """Return the Extent of a used block."""
        cdef uint32_t index
        lock_enter(&self.m.lock)
        index = extent_of(&self.m, block)
        lock_release(&self.m.lock)
        return self.extents[index]

    # Blocks, by address.

    def allocate(self, size, alignment=0, stream=0):
        """Return the address of `size` bytes, or None if no free block fits."""
        cdef uint64_t start
        cdef uint32_t block = self.take(
            as_u64(size, "size"), as_alignment(alignment), as_u64(stream, "stream"), True
        )
        if block == 0:
            return None
        lock_enter(&self.m.lock)  # the array of blocks may move under another thread's hands
        start = self.m.blocks[block].start
        lock_release(&self.m.lock)
        return start

    def free(self, ptr, size=None, stream=None):
        """Free what `allocate` returned; on `stream`, or the one it was allocated on.

        Raises InvalidArgument, with nothing changed, for an address that is not the start of a
        live block, for a wrong `size`, and for a block that another pool lives in.
        """
        cdef uint64_t at = as_u64(ptr, "ptr")
        cdef uint64_t bytes = ANY_SIZE if size is None else min(
            as_u64(size, "size"), <uint64_t>NO_SIZE
        )
        cdef uint64_t handle = 0 if stream is None else as_u64(stream, "stream")
        cdef uint32_t block
        cdef uint32_t tag = 0
        cdef Status status = DONE
        lock_enter(&self.m.lock)
        block = find_freeable(&self.m, at, bytes)
        if block:
            tag = tag_of(&self.m, block)
            if stream is not None:
                status = map_tag(&self.m, handle, &tag)
            if status == DONE:
                map_free(&self.m, block, tag)
        lock_release(&self.m.lock)
        self.raise_status(status)
        if block == 0:
            self.refuse(ptr, size)

    def split(self, ptr, size, first_size):
        """Make two allocations of one, as `Provider.split` does; both are used."""
        cdef uint64_t at = as_u64(ptr, "ptr")
        cdef uint64_t bytes = min(as_u64(size, "size"), <uint64_t>NO_SIZE)
        cdef uint64_t first = as_u64(first_size, "first_size")
        cdef uint32_t block
        cdef Status status = DONE
        if first == 0 or first >= bytes or first & (<uint64_t>self.granule - 1):
            raise InvalidArgument(
                f"cannot split {size} bytes after {first_size}: the first part must be a multiple "
                f"of {self.granule} bytes, more than 0 and less than the whole"
            )
        lock_enter(&self.m.lock)
        block = find_freeable(&self.m, at, bytes)
        if block:
            status = map_split(&self.m, block, first)
        lock_release(&self.m.lock)
        self.raise_status(status)
        if block == 0:
            self.refuse(ptr, size)

    def merge(self, low, high, size):
        """Make one allocation of two used neighbours, as `Provider.merge` does."""
        cdef uint64_t low_at = as_u64(low, "low")
        cdef uint64_t high_at = as_u64(high, "high")
        cdef uint64_t bytes = as_u64(size, "size")
        cdef uint32_t first
        cdef uint32_t second
        cdef bint joined = False
        lock_enter(&self.m.lock)
        first = find_freeable(&self.m, low_at, ANY_SIZE)
        second = find_freeable(&self.m, high_at, ANY_SIZE)
        if first and second and self.m.blocks[first].next == second and (
            tag_of(&self.m, first) == tag_of(&self.m, second)
        ) and (
            span_of(&self.m, first) + requested_of(&self.m, second) == bytes
        ):
            map_merge(&self.m, first)
            joined = True
        lock_release(&self.m.lock)
        if not joined:
            raise InvalidArgument(
                f"cannot merge {low:#x} and {high:#x} into {size} bytes: both must be live, the "
                "second must start where the first ends, on the same stream, and the sizes must "
                "add up"
            )

    cdef uint32_t take(
        self, uint64_t size, uint64_t alignment, uint64_t stream, bint index
    ) except? 0:
        """A used block for the request; 0 without an error set means that none fits."""
        cdef uint32_t block = 0
        cdef uint32_t tag = 0
        cdef Status status
        lock_enter(&self.m.lock)
        status = map_tag(&self.m, stream, &tag)
        if status == DONE:
            status = map_alloc(&self.m, size, alignment, tag, index, &block)
        lock_release(&self.m.lock)
        self.raise_status(status)
        return block

    def refuse(self, ptr, size=None):
        """Raise InvalidArgument that says why `ptr` (of `size` bytes) cannot be freed here."""
        info = self.describe(ptr)
        at = f"{ptr:#x}" if isinstance(ptr, int) else repr(ptr)
        if info is None:
            why = "is not live here: it was freed already, or came from somewhere else"
        elif info["base"] != ptr:
            why = f"lies inside the allocation at {info['base']:#x}; free that address"
        elif info["hosts"]:
            why = "holds the memory of another pool; close that pool first"
        elif info["owned"]:
            why = "belongs to an Allocation object; call its free(), or drop it"
        else:
            why = f"was allocated with {info['size']} bytes, not {size}"
        raise InvalidArgument(f"cannot free {at}: it {why}")

    # Questions.

    def describe(self, address):
        """Return what is known of the used block at any of its addresses, or None.

        A dict with ``base``, ``size`` (requested) and ``span`` in bytes, ``id``, ``stream``,
        ``owned`` (by an object) and ``hosts`` (another pool's memory).
        """
        cdef Extent extent = self._extent_at(address) if isinstance(address, int) else None
        return None if extent is None else self.describe_in(extent, address)

    cdef Extent _extent_at(self, address):
        """The extent of this map that holds the address, or None."""
        cdef Extent extent = innermost(address)
        while extent is not None and extent.map is not self:
            extent = extent.parent
        return extent

    def describe_in(self, Extent extent, address):
        """`describe`, for an address of `extent`."""
        cdef uint64_t at = address
        cdef uint32_t block = 0
        cdef Block entry
        cdef uint64_t span
        cdef uint64_t stream = 0
        lock_enter(&self.m.lock)
        if self.m.extents[extent.index].base <= at and (
            at - self.m.extents[extent.index].base < self.m.extents[extent.index].size
        ):
            block = map_locate(&self.m, extent.index, at)
        if block:
            entry = self.m.blocks[block]
            span = span_of(&self.m, block)
            stream = self.m.shelves[tag_of(&self.m, block)].stream
        lock_release(&self.m.lock)
        if block == 0:
            return None
        return {
            "base": entry.start,
            "size": span - (entry.slack & ~<uint32_t>HOSTS),
            "span": span,
            "id": (<uint64_t>entry.generation << 32) | block,
            "stream": stream,
            "owned": entry.chain == <uint32_t>UNINDEXED,
            "hosts": entry.slack & <uint32_t>HOSTS != 0,
        }

    def blocks(self):
        """Return all blocks by address, as (start, span, used, stream's tag); for tests, tools."""
        cdef Span* spans
        cdef size_t count = 0
        cdef size_t i
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        spans = copy_spans(&self.m, &count)
        lock_release(&self.m.lock)
        if spans == NULL:
            raise MemoryError("no host memory for a list of all blocks")
        try:
            return sorted(
                [(spans[i].start, spans[i].size, spans[i].used, spans[i].tag) for i in range(count)]
            )
        finally:
            free(spans)

    def free_ranges(self, state=SAFE, least=1):
        """Return the free blocks of a state that have at least `least` bytes, as (start, size).

        In no particular order; O(blocks of that state and about that size or more).
        """
        cdef uint32_t tag = as_state(state)
        cdef uint64_t bytes = as_u64(least, "least")
        cdef Span* spans
        cdef size_t count = 0
        cdef size_t i
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        spans = copy_free(&self.m, tag, bytes, &count)
        lock_release(&self.m.lock)
        if spans == NULL:
            raise MemoryError("no host memory for a list of free blocks")
        try:
            return [(spans[i].start, spans[i].size) for i in range(count)]
        finally:
            free(spans)

    def counters(self):
        """Return the counters, all of one moment: bytes, or how often."""
        cdef Counters counters
        cdef uint64_t largest
        cdef uint64_t metadata
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        counters = self.m.counters
        largest = map_largest_free(&self.m)
        metadata = map_metadata_bytes(&self.m)
        lock_release(&self.m.lock)
        return {
            "requested": counters.requested,
            "used": counters.used,
            "reserved": counters.reserved,
            "unbacked": counters.unbacked,
            "hidden": counters.hidden,
            "peak_requested": counters.peak_requested,
            "peak_used": counters.peak_used,
            "peak_reserved": counters.peak_reserved,
            "allocations": counters.allocations,
            "frees": counters.frees,
            "splits": counters.splits,
            "merges": counters.merges,
            "largest_free": largest,
            "metadata": metadata,
            "extents": len(self.extents),
        }

    def reset_peaks(self):
        """Set each peak to what its counter is now; return what they were, and the counters.

        As `counters` names them: ``requested``, ``peak_requested`` and so on.
        """
        cdef Counters before
        lock_enter(&self.m.lock)
        before = self.m.counters
        self.m.counters.peak_requested = self.m.counters.requested
        self.m.counters.peak_used = self.m.counters.used
        self.m.counters.peak_reserved = self.m.counters.reserved
        lock_release(&self.m.lock)
        return {
            "requested": before.requested,
            "used": before.used,
            "reserved": before.reserved,
            "peak_requested": before.peak_requested,
            "peak_used": before.peak_used,
            "peak_reserved": before.peak_reserved,
        }

    def check(self, str level="full"):
        """Raise AssertionError, naming it, if an invariant of DESIGN.md does not hold.

        `level` is ``"off"``, ``"cheap"`` (the counters) or ``"full"`` (everything; O(all)).
        """
        cdef const char* broken
        if level not in ("off", "cheap", "full"):
            raise InvalidArgument(f"check level must be 'off', 'cheap' or 'full', not {level!r}")
        if level == "off":
            return
        lock_enter(&self.m.lock)
        map_settle(&self.m)
        broken = map_check(&self.m, level == "full")
        lock_release(&self.m.lock)
        if broken != NULL:
            raise AssertionError("broken invariant: " + broken.decode())

    # The states of free memory.

    def retag(self, start, size, from_state, to_state, *, bint waited=True):
        """Move a range inside one free block from a state to another; return whether it was one.

        False, with nothing changed, where the range is not free in `from_state` (any more), or
        not in one piece.  The range joins its neighbours of the new state.

        Parameters
        ----------
        start, size
            The range: multiples of the granule, `size` more than 0.
        from_state, to_state
            SAFE: anybody may use it.  HIDDEN: it has memory that nobody may use.  UNBACKED: it
            has none.  LEAVING, COMING: the calling thread is at it with the driver; it has memory,
            or none.  In all but SAFE no request takes it.
        waited
            False if the device was not waited for since the memory left SAFE: what goes back
            there is RETIRING instead, if there are two streams by now.

        Raises
        ------
        InvalidArgument
            The range is no whole number of granules, or a state none of these, or both the same.
        MemoryError
            No host memory for the blocks that the range leaves.  Nothing is changed.
        """
        cdef uint64_t at = as_u64(start, "start")
        cdef uint64_t bytes = as_u64(size, "size")
        cdef uint32_t from_tag = as_state(from_state)
        cdef uint32_t to_tag = as_state(to_state)
        cdef Status status
        cdef Extent extent
        if bytes == 0 or (at | bytes) & (<uint64_t>self.granule - 1):
            raise InvalidArgument(
                f"{size} bytes at {start:#x} are no whole number of granules of {self.granule} "
                "bytes"
            )
        if from_tag == TAG_RETIRING or to_tag == TAG_RETIRING or from_tag == to_tag:
            raise InvalidArgument(
                f"memory cannot go from {STATES[from_tag]} to {STATES[to_tag]}: both must be of "
                "SAFE, HIDDEN, UNBACKED, LEAVING and COMING, and differ"
            )
        extent = self._extent_at(start)
        if extent is None:
            return False
        lock_enter(&self.m.lock)
        if to_tag == TAG_SAFE and not waited and self.m.streams > 1:
            to_tag = TAG_RETIRING
        status = map_retag(&self.m, extent.index, at, bytes, from_tag, to_tag)
        lock_release(&self.m.lock)
        self.raise_status(status)
        return status == DONE

    # The order of streams.

    def retire(self, *, bint everything=False):
        """Set all memory freed so far apart, before the device is waited for.

        Nothing is handed out of it until `retired`; what is freed meanwhile is not in it.
        `everything`: also what every stream may use, since that is not certain any more.
        """
        cdef uint32_t tag
        lock_enter(&self.m.lock)
        if everything:
            map_restamp(&self.m, TAG_SAFE, TAG_RETIRING)
        for tag in range(FIRST_STREAM, FIRST_STREAM + self.m.streams):
            map_restamp(&self.m, tag, TAG_RETIRING)
        lock_release(&self.m.lock)

    def retired(self):
        """The device was waited for: what `retire` set apart is every stream's now."""
        lock_enter(&self.m.lock)
        map_restamp(&self.m, TAG_RETIRING, TAG_SAFE)
        lock_release(&self.m.lock)

    # The end.

    def shut(self):
        """Give nothing more out; what is live can still be freed."""
        lock_enter(&self.m.lock)
        self.m.closed = True
        lock_release(&self.m.lock)

    def abandon(self):
        """Refuse all further calls, in a forked child: whoever held the lock is not here."""
        self.m.closed = True
        self.m.foreign = True
        lock_release(&self.m.lock)

    @property
    def closed(self):
        """Whether nothing more is given out."""
        return self.m.closed

    @property
    def streams(self):
        """How many streams have used this memory; always 0 where streams do not matter."""
        cdef uint32_t streams
        lock_enter(&self.m.lock)
        streams = self.m.streams
        lock_release(&self.m.lock)
        return streams

    @property
    def foreign(self):
        """Whether the map belongs to the process that forked this one."""
        return self.m.foreign


cdef uint32_t as_state(object state) except? 0xFFFFFFFF:
    """A state of free memory, as its tag."""
    if not isinstance(state, int) or not 0 <= state < FIRST_STREAM:
        raise InvalidArgument(f"a state is one of {', '.join(STATES)}, not {state!r}")
    return state


cdef uint64_t as_alignment(object alignment) except? 0xFFFFFFFFFFFFFFFF:
    """An alignment: 0, or a power of two."""
    cdef uint64_t bytes = as_u64(alignment, "alignment")
    if bytes & (bytes - 1):
        raise AlignmentError(f"an alignment must be 0 or a power of two, not {alignment}")
    return bytes
