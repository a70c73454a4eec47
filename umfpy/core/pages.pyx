# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Pages: extents that a pool hands out whole, and units that are no power of two.

What the layouts of `umfpy.manager` need of the extent map beyond what every pool does.  All of
it is made of the map's own operations: there are no lists here, and nothing is kept but totals.
"""

from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc

from umfpy.core.bins cimport NO_BIN, Bins, bin_of, bins_find, bins_head
from umfpy.core.extent_map cimport map_alloc, map_alloc_extent, map_free, map_settle, map_tag
from umfpy.core.extents cimport ExtentMap, as_alignment
from umfpy.core.lock cimport lock_enter, lock_release
from umfpy.core.numbers cimport as_u64
from umfpy.core.pool cimport Allocation, BasePool, as_stream
from umfpy.core.registry cimport Extent
from umfpy.core.structs cimport (
    DONE,
    FIRST_STREAM,
    MAX_SLACK,
    NO_FIT,
    SAFE,
    Map,
    Status,
    extent_of,
    is_apart,
    is_busy,
    is_used,
    lead_of,
    requested_of,
    span_of,
    tag_of,
)

from umfpy.errors import InvalidArgument, StaleHandle

cdef enum:
    SCAN = 8  # pages of one size class that are compared for the lowest age
    ANY_NUMBER = 0xFFFFFFFF

#: The most bytes by which a page may be larger than what is asked of it.
LARGEST_SLACK = MAX_SLACK


def set_unit(BasePool pool not None, granule):
    """Let a pool cut memory up in another unit than its provider's.

    Raises InvalidArgument if the pool holds memory already, or `granule` is no power of two.
    """
    if pool.map.extents:
        raise InvalidArgument(f"pool {pool.name!r} holds memory already: its unit is fixed")
    pool.map = ExtentMap(
        granule, pool, ordered=pool.m.ordered, scan=pool.m.scan, low_from=pool.m.low_from
    )
    pool.m = &pool.map.m


def stream_number(stream):
    """Return the native handle of a stream; see `Pool.allocate`."""
    return as_stream(stream)


# Taking.  Each returns a used block, or None if nothing fits.


def take_page(
    BasePool pool not None, size, least, most, alignment, stream, bint index, bytearray ages
):
    """Use a wholly free extent of `least` to `most` bytes for `size` bytes, uncut.

    Of those that fit the one with the lowest age, and of these the smallest: at most `SCAN`
    pages of each of the map's size classes are compared.  Constant time in the number of pages
    in use.  Its age goes down by one.

    Parameters
    ----------
    ages
        [extent] how often it was found idle, from 0.
    """
    cdef uint64_t bytes = as_u64(size, "size")
    cdef uint64_t low = as_u64(least, "least")
    cdef uint64_t high = as_u64(most, "most")
    cdef uint64_t boundary = as_alignment(alignment)
    cdef uint64_t handle = as_u64(stream, "stream")
    cdef uint32_t tag = 0
    cdef uint32_t block = 0
    cdef Map* m = pool.m
    cdef Status status
    if high > bytes + <uint64_t>MAX_SLACK:
        high = bytes + <uint64_t>MAX_SLACK
    lock_enter(&m.lock)
    map_settle(m)
    status = NO_FIT if m.closed else map_tag(m, handle, &tag)
    if status == DONE:
        if m.streams > 1:
            block = find_page(m, tag, low, high, boundary, ages)
        if block == 0:
            block = find_page(m, SAFE, low, high, boundary, ages)
        status = NO_FIT if block == 0 else map_alloc_extent(
            m, extent_of(m, block), bytes, tag, index, &block
        )
    lock_release(&m.lock)
    return finish(pool, status, block)


def take_extent(BasePool pool not None, Extent extent not None, size, stream):
    """Use this extent for `size` bytes, uncut; None if it is not wholly free, or set apart."""
    cdef uint64_t bytes = as_u64(size, "size")
    cdef uint64_t handle = as_u64(stream, "stream")
    cdef uint32_t tag = 0
    cdef uint32_t block = 0
    cdef Map* m = pool.m
    cdef Status status = NO_FIT
    lock_enter(&m.lock)
    map_settle(m)
    if pool.map.extents.get(extent.index) is extent and m.extents[extent.index].wholly_free and (
        not is_apart(tag_of(m, m.extents[extent.index].first))
    ):
        status = map_tag(m, handle, &tag)
        if status == DONE:
            status = map_alloc_extent(m, extent.index, bytes, tag, False, &block)
    lock_release(&m.lock)
    return finish(pool, status, block)


def take_span(BasePool pool not None, size, span, stream, bint index):
    """Use a block of exactly `span` bytes, a multiple of the granule, for `size` bytes.

    For units that are no power of two; the rest of the span is the block's padding.
    """
    cdef uint64_t bytes = as_u64(size, "size")
    cdef uint64_t extra = as_u64(span, "span") - bytes
    cdef uint64_t handle = as_u64(stream, "stream")
    cdef uint64_t peak
    cdef uint32_t tag = 0
    cdef uint32_t block = 0
    cdef Map* m = pool.m
    cdef Status status
    lock_enter(&m.lock)
    peak = m.counters.peak_requested
    status = NO_FIT if m.closed else map_tag(m, handle, &tag)
    if status == DONE:
        status = map_alloc(m, bytes + extra, 0, tag, index, &block)
    if status == DONE:
        m.blocks[block].slack += <uint32_t>extra
        m.counters.requested -= extra
        m.counters.peak_requested = max(peak, m.counters.requested)
    lock_release(&m.lock)
    return finish(pool, status, block)


cdef finish(BasePool pool, Status status, uint32_t block):
    if status == DONE:
        return block
    if pool.m.closed:
        raise InvalidArgument(
            f"pool {pool.name!r} is closed, or belongs to the process that forked this one"
        )
    if status != NO_FIT:
        pool.map.raise_status(status)
    return None


cdef uint32_t find_page(
    Map* m, uint32_t tag, uint64_t low, uint64_t high, uint64_t alignment, bytearray ages
):
    """A wholly free extent of the shelf, by its one block; 0 for none."""
    cdef uint32_t own = bin_of(low >> m.granule_shift)
    cdef uint32_t last = bin_of(high >> m.granule_shift)
    cdef uint8_t* age = ages
    cdef uint32_t block = oldest_use(m, tag, own, last, low, high, alignment, age, SCAN)
    # In the request's own class the first few may all be too small, and a later one not.
    return block or oldest_use(m, tag, own, own, low, high, alignment, age, ANY_NUMBER)


cdef uint32_t oldest_use(
    Map* m, uint32_t tag, uint32_t bin, uint32_t last, uint64_t low, uint64_t high,
    uint64_t alignment, const uint8_t* ages, uint32_t scan
) noexcept nogil:
    """The page of the lowest age, from bin to bin, `scan` looked at in each."""
    cdef Bins* bins = &m.shelves[tag].bins
    cdef uint32_t best = 0
    cdef uint32_t best_age = 0
    cdef uint64_t best_span = 0
    cdef uint32_t block
    cdef uint32_t age
    cdef uint64_t span
    cdef uint32_t left
    bin = bins_find(bins, bin)
    while bin <= last and bin != <uint32_t>NO_BIN:
        block = bins_head(bins, bin)[0]
        left = scan
        while block and left:
            span = span_of(m, block)
            age = ages[extent_of(m, block)]
            if low <= span <= high and lead_of(m, block, alignment if alignment else 1) == 0 and (
                best == 0 or age < best_age or (age == best_age and span < best_span)
            ):
                best, best_age, best_span = block, age, span
            block = m.blocks[block].chain
            left -= 1
        if best and best_age == 0:
            break  # no other is younger, and all that follow are larger
        bin = bins_find(bins, bin + 1)
    if best and ages[extent_of(m, best)]:
        (<uint8_t*>ages)[extent_of(m, best)] -= 1
    return best


def grant(BasePool pool not None, uint32_t block, size, stream):
    """Return an `Allocation` of a used block that nobody owns yet."""
    cdef Allocation allocation = Allocation.__new__(Allocation)
    allocation.home = pool
    allocation.stream_handle = stream
    allocation.grant.size = size
    allocation.grant.block = block
    lock_enter(&pool.m.lock)
    pool.fill(&allocation.grant)
    lock_release(&pool.m.lock)
    allocation.live = True
    return allocation


def free_block(BasePool pool not None, uint32_t block, uint32_t generation):
    """Have a used block be free, and its extent stay: where that is for `detach`, but later.

    Raises StaleHandle if the block is not the one of that generation, InvalidArgument if another
    pool lives in it.
    """
    cdef Map* m = pool.m
    cdef Extent extent = None
    cdef bint live
    cdef bint hosts = False
    lock_enter(&m.lock)
    live = is_used(m, block) and m.blocks[block].generation == generation
    if live:
        hosts = m.blocks[block].slack >> 31
        extent = pool.map.extents.get(extent_of(m, block))
        live = extent is not None and extent.registered  # else another thread is at it
    if live and not hosts:
        map_free(m, block, tag_of(m, block))
    lock_release(&m.lock)
    if not live:
        raise StaleHandle(f"block {block} of pool {pool.name!r} was freed already")
    if hosts:
        raise InvalidArgument(
            "the allocation holds the memory of another pool; close that pool first"
        )


# Questions.


def start_of(BasePool pool not None, uint32_t block):
    """Return the address of a used block."""
    cdef uint64_t start
    lock_enter(&pool.m.lock)
    start = pool.m.blocks[block].start
    lock_release(&pool.m.lock)
    return start


def page_of(Allocation allocation not None):
    """Return the Extent that a live allocation lies in."""
    return allocation.home.map.extent_of(allocation.grant.block)


def idle_page(ExtentMap space not None, bint whole):
    """Return a wholly free Extent, or None; with `whole` one of the largest size class.

    `whole` is for maps whose blocks are all whole extents.
    """
    cdef Map* m = &space.m
    cdef uint32_t index = 0
    lock_enter(&m.lock)
    map_settle(m)
    index = largest_page(m) if whole else m.extents_free
    lock_release(&m.lock)
    return space.extents.get(index) if index else None


cdef uint32_t largest_page(const Map* m) noexcept nogil:
    cdef uint32_t tag
    cdef uint32_t bin
    cdef uint32_t top
    cdef uint32_t block
    cdef uint32_t best = 0
    for tag in range(FIRST_STREAM + m.streams):
        if m.shelves[tag] == NULL or is_busy(tag):
            continue
        bin = bins_find(&m.shelves[tag].bins, 0)
        top = NO_BIN
        while bin != <uint32_t>NO_BIN:
            top = bin
            bin = bins_find(&m.shelves[tag].bins, bin + 1)
        if top != <uint32_t>NO_BIN:
            block = bins_head(<Bins*>&m.shelves[tag].bins, top)[0]
            if best == 0 or span_of(m, block) > span_of(m, best):
                best = block
    return extent_of(m, best) if best else 0


def page_padding(ExtentMap space not None, unit):
    """Return the bytes that live slices were rounded up by, a slice a page; O(pages)."""
    cdef uint64_t step = unit
    cdef uint64_t total = 0
    cdef uint64_t over
    cdef uint32_t i
    cdef Map* m = &space.m
    lock_enter(&m.lock)
    for i in range(1, m.extents_used):
        if m.extents[i].size and is_used(m, m.extents[i].first):
            over = requested_of(m, m.extents[i].first) % step
            total += step - over if over else 0
    lock_release(&m.lock)
    return total


cdef class Totals:
    """Sums over the maps of several pools, and the peaks of these sums.

    Attributes
    ----------
    peak_requested, peak_used, peak_reserved
        Bytes.
    peak_live
        Slices.
    """

    cdef list spaces  # keeps the maps
    cdef Map** maps
    cdef uint64_t* tops  # [map] the most slices that it had
    cdef size_t count
    cdef uint64_t top_requested
    cdef uint64_t top_used
    cdef uint64_t top_reserved
    cdef uint64_t top_live

    def __cinit__(self):
        self.spaces = []

    def __dealloc__(self):
        free(self.maps)
        free(self.tops)

    def follow(self, spaces):
        """Sum over these maps from now on."""
        cdef list chosen = list(spaces)
        cdef list before = [self.peak_live_of(space) for space in chosen]
        cdef Map** maps = <Map**>realloc(self.maps, (len(chosen) + 1) * sizeof(Map*))
        cdef uint64_t* tops
        cdef Py_ssize_t i
        if maps == NULL:
            raise MemoryError("no host memory for totals")
        self.maps = maps
        self.count = 0
        tops = <uint64_t*>realloc(self.tops, (len(chosen) + 1) * sizeof(uint64_t))
        if tops == NULL:
            raise MemoryError("no host memory for totals")
        self.tops = tops
        for i in range(len(chosen)):
            maps[i] = &(<ExtentMap?>chosen[i]).m
            tops[i] = before[i]
        self.spaces = chosen
        self.count = len(chosen)

    cpdef note(self):
        """Let the peaks rise to what the sums are now."""
        cdef uint64_t requested = 0
        cdef uint64_t used = 0
        cdef uint64_t reserved = 0
        cdef uint64_t live = 0
        cdef uint64_t here
        cdef size_t i
        for i in range(self.count):
            requested += self.maps[i].counters.requested
            used += self.maps[i].counters.used
            reserved += self.maps[i].counters.reserved
            here = self.maps[i].counters.allocations - self.maps[i].counters.frees
            self.tops[i] = max(self.tops[i], here)
            live += here
        self.top_requested = max(self.top_requested, requested)
        self.top_used = max(self.top_used, used)
        self.top_reserved = max(self.top_reserved, reserved)
        self.top_live = max(self.top_live, live)

    def reset(self):
        """Let every peak start again from what its sum is now."""
        cdef size_t i
        self.top_requested = self.top_used = self.top_reserved = self.top_live = 0
        for i in range(self.count):
            self.tops[i] = 0
        self.note()

    def peak_live_of(self, ExtentMap space not None):
        """Return the most slices that one of the maps had when they were noted; 0 for another."""
        cdef size_t i
        for i in range(self.count):
            if self.maps[i] == &space.m:
                return self.tops[i]
        return 0

    @property
    def reserved(self):
        """Bytes held, now."""
        cdef uint64_t total = 0
        cdef size_t i
        for i in range(self.count):
            total += self.maps[i].counters.reserved
        return total

    @property
    def peak_requested(self):
        return self.top_requested

    @property
    def peak_used(self):
        return self.top_used

    @property
    def peak_reserved(self):
        return self.top_reserved

    @property
    def peak_live(self):
        return self.top_live
