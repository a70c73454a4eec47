# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True
"""Handles of a manager's slices: identity, users, and when the memory goes.

A `Slice` is the identity of memory; handles and bindings refer to it.  It owns an `Allocation`,
so that dropping the last reference frees the memory, at once and in whatever thread.  Nothing
here refers back to a slice, and no cycle can keep one alive.
"""

import itertools
import weakref

cimport cython

from umfpy.core.pool cimport Allocation

from umfpy.errors import InvalidArgument, StaleHandle

_ids = itertools.count(1)


@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Slice:
    """The identity of a piece of a manager's memory."""

    def __cinit__(self):
        self.id = next(_ids)
        self.cursor = 0


@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Handle:
    """A user's hold on a slice of a `MemoryManager`; `MemoryManager.reserve` makes it.

    ``Handle()`` makes one without memory, for `MemoryManager.bind` to give it some.  The memory
    is freed when the last handle and binding of the slice is released or dropped.
    """

    def __init__(self):
        if self.slice is None:
            self.slice = Slice.__new__(Slice)
            self.slice.users = 1

    def __dealloc__(self):
        if self.slice is not None:
            self.slice.users -= 1

    def clone(self):
        """Return another handle of the same slice.  Raises StaleHandle if this one is released."""
        return new_handle(slice_of(self))

    def binding(self):
        """Turn this handle into a `Binding`: memory that is needed, but no longer by a user.

        The handle is released.  Raises StaleHandle if it was before.
        """
        cdef Binding binding = Binding.__new__(Binding)
        binding.slice = slice_of(self)
        self.release()
        return binding

    def can_mut(self):
        """Return whether this is the only handle, so that the memory may be changed in place.

        Bindings do not count.  False for a released handle.
        """
        return self.slice is not None and self.slice.users == 1

    def is_free(self):
        """Return whether nobody holds the slice any more, as handle or binding."""
        return self.slice is None and (self.left is None or self.left() is None)

    def release(self):
        """Give this handle's hold up now; if it is the last one, the memory is free.

        Releasing twice is fine.
        """
        cdef Slice slice = self.slice
        if slice is not None:
            self.slice = None
            slice.users -= 1
            # Last: what is made here may collect garbage that releases this handle, too.
            self.left = weakref.ref(slice)

    @property
    def released(self):
        """Whether this handle was released."""
        return self.slice is None

    @property
    def id(self):
        """The slice's number, which no other slice of this process has; 0 once released."""
        return 0 if self.slice is None else self.slice.id

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.release()

    def __copy__(self):
        raise TypeError("a Handle is copied with clone(), which counts it")

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __reduce__(self):
        raise TypeError(
            "a Handle means nothing to another process; send umfpy.ipc.export(storage.ptr)"
        )

    def __repr__(self):
        return describe("Handle", self.slice)


@cython.final
@cython.no_gc
cdef class Binding:
    """Memory that work already queued still needs: it blocks reuse, but not in-place changes.

    `Handle.binding` makes it.  It may go wherever a handle is looked up.
    """

    def __init__(self):
        raise InvalidArgument("a binding is made by a handle: handle.binding()")

    def release(self):
        """Give the memory up; releasing twice is fine."""
        self.slice = None

    @property
    def released(self):
        """Whether this binding was released."""
        return self.slice is None

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.release()

    def __reduce__(self):
        raise TypeError(
            "a Binding means nothing to another process; send umfpy.ipc.export(storage.ptr)"
        )

    def __repr__(self):
        return describe("Binding", self.slice)


cdef describe(str kind, Slice slice):
    if slice is None:
        return f"<{kind}, released>"
    if slice.allocation is None:
        return f"<{kind} of slice {slice.id}, no memory>"
    return f"<{kind} of slice {slice.id}: {slice.allocation.size} bytes>"


cdef Handle new_handle(Slice slice):
    cdef Handle handle = Handle.__new__(Handle)
    handle.slice = slice
    slice.users += 1
    return handle


cdef Slice slice_of(object handle):
    """The slice of a handle or binding that was not released."""
    cdef Slice slice
    if isinstance(handle, Handle):
        slice = (<Handle>handle).slice
    elif isinstance(handle, Binding):
        slice = (<Binding>handle).slice
    else:
        raise InvalidArgument(f"a Handle or a Binding is needed, not {type(handle).__name__}")
    if slice is None:
        raise StaleHandle("the handle was released; clone() it before, to keep the memory")
    return slice


def wrap(Allocation allocation not None, manager not None):
    """Return the first handle of a new slice, which owns `allocation` from now on."""
    cdef Slice slice = Slice.__new__(Slice)
    slice.allocation = allocation
    slice.manager = manager
    return new_handle(slice)


cpdef Allocation allocation_of(object handle, object manager):
    """Return the memory behind a handle or binding.

    Raises
    ------
    StaleHandle
        It was released; it has no memory yet, or its memory was bound to another handle; it is
        another manager's.
    """
    cdef Slice slice = slice_of(handle)
    if slice.manager is None:
        raise StaleHandle(
            f"slice {slice.id} has no memory yet; bind() a reserved handle to it first"
        )
    if slice.manager is not manager:
        raise StaleHandle(
            f"slice {slice.id} belongs to {slice.manager.name!r}, not to {manager.name!r}"
        )
    if slice.allocation is None:
        raise StaleHandle(
            f"the memory of slice {slice.id} was bound to another handle; use that one"
        )
    if not slice.allocation.live:
        raise StaleHandle(f"the memory of slice {slice.id} was freed")
    return slice.allocation


def rebind(reserved, assigned, manager, cursor):
    """Move the memory of `reserved` to the slice of `assigned`, and note the cursor.

    Raises StaleHandle as `allocation_of`, InvalidArgument if `assigned` had memory already.
    """
    cdef Allocation allocation = allocation_of(reserved, manager)
    cdef Slice source = slice_of(reserved)
    cdef Slice target = slice_of(assigned)
    if target is not source:
        if target.manager is not None:
            raise InvalidArgument(
                f"slice {target.id} was given memory before; bind to a fresh Handle()"
            )
        target.allocation = allocation
        target.manager = manager
        source.allocation = None
    target.cursor = cursor


def cursor_of(handle, manager):
    """Return the cursor that the slice was bound at, 0 before; StaleHandle as `allocation_of`."""
    allocation_of(handle, manager)
    return slice_of(handle).cursor


def watch(handle):
    """Return a weak reference to the slice of a handle; see `revive`."""
    return weakref.ref(slice_of(handle))


def revive(Slice slice not None):
    """Return one more handle of a slice that is still held."""
    return new_handle(slice)
