"""What an extent map consists of: its structures, and what can be read off them."""

from libc.stdint cimport uint16_t, uint32_t, uint64_t

from umfpy.core.bins cimport Bins
from umfpy.core.lock cimport Lock
from umfpy.core.regions cimport Regions

cdef enum Status:
    DONE = 0
    NO_FIT = 1  # no free block fits
    NO_HOST_MEMORY = 2  # the arrays could not grow
    TOO_MANY_EXTENTS = 3
    TOO_MANY_STREAMS = 4

cdef enum:
    TAG_BITS = 12  # of `Block.home`
    TAG_MASK = 0xFFF
    MAX_EXTENTS = 0xFFFFF
    # Tags of free memory.
    SAFE = 0  # any stream may use it
    RETIRING = 1  # the device is being waited for
    HIDDEN = 2  # set apart: it has its memory, which nobody may use
    UNBACKED = 3  # set apart: addresses without memory
    LEAVING = 4  # set apart: a thread is at it with the driver; it has its memory
    COMING = 5  # set apart: a thread is at it with the driver; it has none
    FIRST_STREAM = 6  # tags from here on stand for streams
    HOSTS = 0x80000000  # in `Block.slack`: another pool's extent lies in this block
    MAX_SLACK = 0x7FFFFFFF  # what `Block.slack` has room for beside HOSTS
    UNINDEXED = 0xFFFFFFFF  # in `Block.chain`: an object owns the block, `map_exact` hides it

# A span of addresses.  Its size is where the next block starts less where it starts itself.
cdef struct Block:
    uint64_t start
    uint32_t prev  # the neighbour below, 0 at the extent's base
    uint32_t next  # the neighbour above; the last is a sentinel of size 0 that is never free
    uint32_t slack  # used: bytes beyond the request, and HOSTS   free: previous in its bin
    uint32_t chain  # used: next in its hash chain, or UNINDEXED  free: next in its bin
    uint32_t home  # extent << TAG_BITS | tag of the stream
    uint32_t generation  # odd while used; counts on with each use

# One contiguous range from the provider: the physical root of its blocks.
cdef struct Extent:
    uint64_t base
    uint64_t size
    uint64_t fresh  # the frontier: from here on nothing was used since it came, and reads as zero
    uint32_t first  # the block at the base
    uint32_t sentinel  # the block past the end
    uint32_t next_free  # in the list of wholly free extents, or of unused entries
    uint32_t prev_free
    bint wholly_free
    Regions* regions  # made at the first look-up of an interior address, NULL before

# The order of free memory: what was freed on one stream is kept apart, once there are two.
cdef struct Shelf:
    uint64_t stream  # the stream's native handle, for tags that stand for one
    Bins bins

# used = requested + slack; reserved = used + free that has memory; reserved + unbacked = extents.
# Each peak is the highest its counter has been.
cdef struct Counters:
    uint64_t requested
    uint64_t used
    uint64_t reserved
    uint64_t peak_requested
    uint64_t peak_used
    uint64_t peak_reserved
    uint64_t allocations  # ever
    uint64_t frees  # ever
    uint64_t splits
    uint64_t merges
    uint64_t unbacked  # free: UNBACKED or COMING
    uint64_t hidden  # free: HIDDEN, and part of reserved

# What a block that was to grow came up against.
cdef struct Stretch:
    uint64_t dirty_end  # DONE: from this address on its new bytes read as zero
    uint64_t reach  # NO_FIT: where what it may have ends, if what follows is free; else 0

cdef struct Map:
    Lock lock
    bint closed  # nothing more is given out
    bint foreign  # this is a forked child: nothing is taken back either
    bint ordered  # the provider has streams
    int granule_shift
    uint32_t scan  # how many blocks of a bin are looked at for a closer fit
    uint32_t streams  # how many tags stand for streams: FIRST_STREAM and up
    uint16_t[64] tag_cache  # [hash of the stream] a tag to try first
    uint32_t pending  # the block freed last, not merged yet; see `map_settle`
    uint32_t blocks_used  # entries of `blocks` ever used
    uint32_t blocks_capacity
    uint32_t blocks_unused  # list of given back entries, linked by `next`
    uint32_t extents_used
    uint32_t extents_capacity
    uint32_t extents_unused
    uint32_t extents_free  # list of wholly free extents
    uint32_t indexed  # blocks in the hash
    uint32_t hash_shift  # 64 - log2 of its size
    uint32_t* hash  # heads of chains, by start address
    Block* blocks
    Extent* extents
    Shelf** shelves  # [tag]; NULL where the tag has no memory
    Counters counters
    # Last, since the hot paths have no use for them.
    uint64_t low_from  # requests of so many bytes go to the lowest address that fits; 0: none
    uint32_t fresh_block  # what moved a frontier last, and its generation
    uint32_t fresh_generation
    uint64_t fresh_from  # the first of its bytes that nobody had used


cdef inline bint is_used(const Map* m, uint32_t block) noexcept nogil:
    return m.blocks[block].generation & 1


cdef inline uint64_t span_of(const Map* m, uint32_t block) noexcept nogil:
    """The bytes that a block covers."""
    return m.blocks[m.blocks[block].next].start - m.blocks[block].start


cdef inline uint64_t requested_of(const Map* m, uint32_t block) noexcept nogil:
    """The bytes that a used block was asked for."""
    return span_of(m, block) - (m.blocks[block].slack & ~<uint32_t>HOSTS)


cdef inline uint32_t extent_of(const Map* m, uint32_t block) noexcept nogil:
    return m.blocks[block].home >> TAG_BITS


cdef inline uint32_t tag_of(const Map* m, uint32_t block) noexcept nogil:
    return m.blocks[block].home & TAG_MASK


cdef inline bint is_apart(uint32_t tag) noexcept nogil:
    """Whether free memory of this tag is out of every request's reach, for as long as it lasts."""
    return HIDDEN <= tag < FIRST_STREAM


cdef inline bint is_busy(uint32_t tag) noexcept nogil:
    """Whether a thread is at free memory of this tag, so that its extent must stay."""
    return tag == LEAVING or tag == COMING


cdef inline bint is_backed(uint32_t tag) noexcept nogil:
    """Whether free memory of this tag has memory."""
    return tag != UNBACKED and tag != COMING


cdef inline uint64_t padded(const Map* m, uint64_t size) noexcept nogil:
    """`size` rounded up to whole granules, at least one.  The caller has bounded it."""
    cdef uint64_t mask = (<uint64_t>1 << m.granule_shift) - 1
    return (size + mask) & ~mask if size else mask + 1


cdef inline uint64_t lead_of(const Map* m, uint32_t block, uint64_t alignment) noexcept nogil:
    """The bytes from the block's start to the next aligned address."""
    return (0 - m.blocks[block].start) & (alignment - 1)


cdef inline uint32_t shelf_tag(const Map* m, uint32_t tag) noexcept nogil:
    """Where memory freed on the tag's stream goes: one stream alone needs no order.

    Nor does a closed map, which gives nothing out: whoever returns its extents waits first.
    """
    return tag if m.streams > 1 and not m.closed else SAFE
