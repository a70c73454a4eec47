"""Handles of a manager's slices: identity, users, and when the memory goes."""

from umfpy.core.pool cimport Allocation


# What all handles and bindings of one slice share.  The last of them takes the memory with it.
cdef class Slice:
    cdef Allocation allocation  # None before `bind`, and after its memory got another identity
    cdef object manager  # that gave the memory; None before
    cdef object cursor  # logical time of the stream that the slice was bound at
    cdef object id  # no other slice of this process has it
    cdef int users  # handles, without bindings
    cdef object __weakref__


cdef class Handle:
    cdef Slice slice  # None once released
    cdef object left  # after `release`: a weak reference to the slice
    cdef object __weakref__


cdef class Binding:
    cdef Slice slice
    cdef object __weakref__


# The memory behind a handle or binding of `manager`; StaleHandle, with the reason, for any other.
cpdef Allocation allocation_of(object handle, object manager)
