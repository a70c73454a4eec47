"""The invariants of the extent map, read off the structure itself."""

from umfpy.core.structs cimport Map

# The first invariant that does not hold, in words, or NULL.  Cheap: only the counters;
# full: every block, bin, region and chain.
cdef const char* map_check(Map* m, bint full) noexcept nogil
