# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Every extent of the process, by address.

One sorted array.  Extents nest (a pool over a pool's allocation), so that it is sorted by base and
then the larger first: whatever encloses an address is the last entry at or before it, or a parent
of that.  Its functions run without calling Python code, nor letting the GIL go while they wait for
the lock of a map, so that the GIL is lock enough.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport realloc
from libc.string cimport memmove

from umfpy.core.extent_map cimport map_locate
from umfpy.core.lock cimport lock_enter_with_gil, lock_release
from umfpy.core.structs cimport HOSTS, UNBACKED, Map, span_of

from umfpy.errors import InvalidArgument

cdef struct Entry:
    uint64_t base
    uint64_t end
    PyObject* extent  # borrowed

cdef Entry* entries = NULL
cdef size_t entries_used = 0
cdef size_t entries_capacity = 0


cdef size_t entries_after(uint64_t base, uint64_t end) noexcept:
    """How many entries come before a range: the lower base first, then the larger range."""
    cdef size_t low = 0
    cdef size_t high = entries_used
    cdef size_t middle
    while low < high:
        middle = (low + high) // 2
        if entries[middle].base < base or (
            entries[middle].base == base and entries[middle].end >= end
        ):
            low = middle + 1
        else:
            high = middle
    return low


cdef Extent enclosing(size_t position, uint64_t base, uint64_t end):
    """The innermost extent before `position` that encloses the range, or None."""
    cdef Extent extent
    if position == 0:
        return None
    extent = <Extent>entries[position - 1].extent
    while extent is not None and not (extent.base <= base and end <= extent.base + extent.size):
        extent = extent.parent
    return extent


cdef register(Extent extent):
    """Enter an extent, below the block that it lies in.

    Raises InvalidArgument where it overlaps what is already managed, with nothing changed.
    """
    global entries, entries_used, entries_capacity
    cdef uint64_t base = extent.base
    cdef uint64_t end = base + <uint64_t>extent.size
    cdef size_t position = entries_after(base, end)
    cdef Extent parent = enclosing(position, base, end)
    cdef Entry* grown
    refuse_overlap(extent, position, parent, base, end)
    if entries_used == entries_capacity:
        grown = <Entry*>realloc(entries, (entries_capacity * 2 + 64) * sizeof(Entry))
        if grown == NULL:
            raise MemoryError("no host memory for the registry of extents")
        entries = grown
        entries_capacity = entries_capacity * 2 + 64
    if parent is not None:
        adopt(parent, extent, base, end)
    memmove(&entries[position + 1], &entries[position], (entries_used - position) * sizeof(Entry))
    entries[position] = Entry(base, end, <PyObject*>extent)
    entries_used += 1
    extent.registered = True


cdef refuse_overlap(Extent extent, size_t position, Extent parent, uint64_t base, uint64_t end):
    """Raise InvalidArgument if the range overlaps an extent that does not enclose it.

    What starts before it and reaches into it is the entry before, or encloses that one.
    """
    cdef Extent other = <Extent>entries[position - 1].extent if position else None
    while other is not parent and other.base + other.size <= base:
        other = other.parent
    if other is parent:
        if position == entries_used or entries[position].base >= end:
            return
        other = <Extent>entries[position].extent
    raise InvalidArgument(
        f"{extent.size} bytes at {extent.base:#x} from {extent.provider!r} overlap "
        f"{other.size} bytes at {other.base:#x} that {other.provider!r} already gave; "
        "memory can be managed by one pool at a time, or by a pool inside one allocation"
    )


cdef adopt(Extent parent, Extent child, uint64_t base, uint64_t end):
    """Mark the parent's block as hosting an extent, so that it cannot be freed under it."""
    cdef Map* m = parent.m
    cdef uint32_t block = 0
    lock_enter_with_gil(&m.lock)
    # The parent's ends may lie outside its blocks: they fill no granule.
    if m.extents[parent.index].base <= base and (
        base - m.extents[parent.index].base < m.extents[parent.index].size
    ):
        block = map_locate(m, parent.index, base)
    if block and m.blocks[block].start + span_of(m, block) >= end:
        m.blocks[block].slack |= <uint32_t>HOSTS
    else:
        block = 0
    lock_release(&m.lock)
    if block == 0:
        raise InvalidArgument(
            f"{child.size} bytes at {child.base:#x} do not lie inside one allocation of "
            f"{parent.provider!r}; give a pool the whole or a part of a live allocation"
        )
    child.parent = parent
    child.parent_block = block


cdef unregister(Extent extent):
    """Take an extent out; the caller has seen to it that none lies in it."""
    cdef uint64_t base = extent.base
    cdef size_t position = entries_after(base, base + <uint64_t>extent.size) - 1
    while <Extent>entries[position].extent is not extent:
        position -= 1
    strike(position)
    extent.registered = False
    if extent.parent is not None:
        orphan(extent, position)


cdef void strike(size_t position) noexcept:
    """Remove one entry."""
    global entries_used
    entries_used -= 1
    memmove(&entries[position], &entries[position + 1], (entries_used - position) * sizeof(Entry))


cdef void forget(PyObject* extent) noexcept:
    """Take out an extent that is being destroyed: the map that owned it is gone."""
    cdef size_t position
    for position in range(entries_used):
        if entries[position].extent == extent:
            strike(position)
            return


cdef orphan(Extent extent, size_t position):
    """Let the parent's block be freed again, once no other extent lies in it."""
    cdef Extent parent = extent.parent
    cdef Map* m = parent.m
    cdef uint64_t start
    cdef uint64_t end
    lock_enter_with_gil(&m.lock)  # the array of blocks may move under another thread's hands
    start = m.blocks[extent.parent_block].start
    end = start + span_of(m, extent.parent_block)
    lock_release(&m.lock)
    extent.parent = None
    if position < entries_used and entries[position].base < end:
        return
    if position and entries[position - 1].base >= start and (
        <Extent>entries[position - 1].extent is not parent
    ):
        return
    lock_enter_with_gil(&m.lock)
    m.blocks[extent.parent_block].slack &= ~<uint32_t>HOSTS
    lock_release(&m.lock)


cpdef Extent innermost(object address):
    """Return the innermost extent that holds `address`, or None; O(log extents + depth)."""
    cdef uint64_t at
    if not 0 <= address < 1 << 64:
        return None
    at = address
    # Behind every entry that starts here: no range that starts here is empty.
    return enclosing(entries_after(at, 0), at, at + 1)


@cython.no_gc_clear  # the registry reads the fields for as long as the object exists
cdef class Extent:
    """One contiguous range from a provider: the physical root of the blocks cut from it."""

    def __dealloc__(self):
        if self.registered:
            forget(<PyObject*>self)

    def __repr__(self):
        return f"Extent({self.base:#x}, {self.size} bytes, {self.provider!r})"

    @property
    def root(self):
        """The physical root: this extent, or the one that its pool's memory comes from."""
        cdef Extent extent = self
        while extent.parent is not None:
            extent = extent.parent
        return extent

    @property
    def backed(self):
        """Whether an extent that was removed from its map has memory: it was not UNBACKED."""
        return self.left_as != UNBACKED

    def __contains__(self, address):
        return self.base <= address < self.base + self.size
