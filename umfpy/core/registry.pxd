"""Every extent of the process, by address."""

from libc.stdint cimport uint32_t

from umfpy.core.structs cimport Map


# One contiguous range from a provider.  Owned by its map; the registry only borrows it.
cdef class Extent:
    cdef readonly object base  # address
    cdef readonly object size  # bytes, as the provider gave them
    cdef readonly object provider  # who they go back to
    cdef readonly object map  # the `ExtentMap`
    cdef Map* m  # of `map`
    cdef readonly uint32_t index  # in the map
    cdef readonly Extent parent  # the extent that this one lies in, None for a physical root
    cdef uint32_t parent_block  # and the block of it
    cdef bint registered  # the registry borrows this object
    cdef uint32_t left_as  # the tag for `ExtentMap.restore`, once it was removed
    cdef public object export  # what `umfpy.ipc` keeps of a root: its exports
    cdef object __weakref__


# Enter an extent, below the block that it lies in; InvalidArgument where it overlaps another.
cdef register(Extent extent)

# Take an extent out, in which no other one lies.
cdef unregister(Extent extent)

cpdef Extent innermost(object address)
