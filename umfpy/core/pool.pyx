# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
# cython: cdivision=True, embedsignature=True, embedsignature.format=clinic
"""The base of every pool, and the allocations that pools hand out.

The short way from a request to an address is compiled and lies here; what happens when the map
has nothing that fits is a policy, and lies in `umfpy.pools`.
"""

import itertools
import warnings
import weakref

cimport cython
from cpython.exc cimport PyErr_Clear
from cpython.long cimport PyLong_CheckExact
from cpython.ref cimport PyObject
from libc.stdint cimport uint32_t, uint64_t

from umfpy.core.extent_map cimport map_alloc, map_dirty, map_free, map_resize, map_tag
from umfpy.core.extents cimport ExtentMap, as_alignment, find_freeable
from umfpy.core.lock cimport lock_enter, lock_release
from umfpy.core.numbers cimport ANY_SIZE, NO_SIZE, _as_unsigned, as_u64
from umfpy.core.structs cimport DONE, NO_FIT, Map, Status, padded, tag_of

from umfpy.errors import InvalidArgument, NotSupported, StaleHandle
from umfpy.provider import Capability

cdef extern from "Python.h":
    ctypedef void (*destructor)(PyObject* self) noexcept
    ctypedef struct PyTypeObject:
        destructor tp_dealloc

    void PyErr_Fetch(PyObject** kind, PyObject** value, PyObject** trace)
    void PyErr_Restore(PyObject* kind, PyObject* value, PyObject* trace)

cdef enum:
    HUGE = 0x8000000000000000  # 2^63: what no map can hold

cdef object ZERO = 0  # the most usual alignment, known by its identity
_serials = itertools.count(1)
_pools = weakref.WeakValueDictionary()  # by serial

# What a pool has before `__init__`: it gives nothing out and takes nothing back.
cdef Map _nothing
_nothing.closed = True
_nothing.foreign = True


def live_pools():
    """Return the pools of this process that still exist, of those that were entered."""
    # Not by iteration: another thread may make a pool meanwhile.
    return [pool for pool in [reference() for reference in _pools.valuerefs()] if pool is not None]


def enter_pool(BasePool pool not None):
    """Enter a pool among the live ones, now that it is all made."""
    _pools[pool.serial] = pool


def next_serial():
    """Return a number that no pool or sub-allocating provider of this process has."""
    return next(_serials)


cdef uint64_t as_stream(object stream) except? 0xFFFFFFFFFFFFFFFF:
    """The native handle of a stream: an integer, or an object of a library that has streams."""
    if stream is None:
        return 0
    if isinstance(stream, int):
        return as_u64(stream, "stream")
    if hasattr(stream, "__cuda_stream__"):
        return as_u64(stream.__cuda_stream__()[1], "stream")
    for attribute in ("ptr", "cuda_stream", "handle"):  # CuPy; PyTorch; Numba, cuda.core
        if hasattr(stream, attribute):
            return as_u64(int(getattr(stream, attribute)), "stream")
    raise InvalidArgument(
        f"stream must be a native handle, or an object with __cuda_stream__, not {stream!r}"
    )


@cython.no_gc_clear  # allocations that are collected together with their pool still need it
cdef class BasePool:
    """Allocations over an extent map; `umfpy.Pool` and its siblings add the policy.

    A subclass defines ``_obtain(size, alignment, stream, index)``, which returns a used block of
    the map when nothing that fits is free, or raises; ``_drain()``, called after each free once the
    pool is closed; and with `direct` also ``_discard(block, generation)``, which takes blocks back.
    """

    def __cinit__(self):
        self.m = &_nothing

    def __init__(
        self, provider, *, name=None, bint zero=False, bint direct=False, scan=8, low_from=0
    ):
        if self.map is not None:
            raise InvalidArgument(f"pool {self.name!r} cannot be initialised twice")
        capabilities = provider.capabilities
        if zero and not capabilities & Capability.ZERO:
            raise InvalidArgument(
                f"zero=True needs a provider that can clear memory; {provider!r} cannot"
            )
        self.provider = provider
        self.serial = next_serial()
        self.name = name or f"{provider.name}-{self.serial}"
        self.direct = direct
        self.zeroed = zero
        self.map = ExtentMap(
            provider.granule,
            self,
            ordered=bool(capabilities & Capability.STREAMS),
            scan=scan,
            low_from=low_from,
        )
        self.m = &self.map.m

    # Objects.

    @cython.binding(False)  # a plain method is called with less ado
    def allocate(self, size, alignment=0, stream=None, bint zero=False):
        """Return `size` bytes as an `Allocation`, which frees them when it is dropped.

        Parameters
        ----------
        size
            Bytes; 0 is legal and gives an address of its own.
        alignment
            A power of two; 0 means the provider's granule.
        stream
            The stream whose work will use the memory first: a native handle, a stream object, or
            None for the default stream.  The memory is ready for work queued there; for other
            streams the caller orders it.
        zero
            Whether the memory reads as zero, for work queued on `stream`.

        Raises
        ------
        OutOfMemoryError
            Nothing more to be had, after everything that could be given back was.
        InvalidArgument, AlignmentError
            `size`, `alignment` or `stream` is none; or the pool is closed.
        """
        cdef Allocation allocation
        cdef uint64_t handle = 0 if stream is None else as_stream(stream)
        if zero:
            self._refuse_zero()
        allocation = Allocation.__new__(Allocation)
        allocation.home = self
        allocation.stream_handle = handle
        # Straight into the object: a copy of what was just written would stall.
        self.take(size, alignment, handle, False, &allocation.grant)
        allocation.live = True
        if zero or self.zeroed:
            self._clear_block(allocation.grant.block, allocation.grant.size, handle)
        return allocation

    # Raw addresses, for plug-ins.

    @cython.binding(False)  # a plain method is called with less ado
    def malloc(self, size, alignment=0, stream=None, bint zero=False):
        """Return the address of `size` bytes, which `free` takes back; raises as `allocate`."""
        cdef Grant grant
        cdef uint64_t handle = 0 if stream is None else as_stream(stream)
        if zero:
            self._refuse_zero()
        self.take(size, alignment, handle, True, &grant)
        if zero or self.zeroed:
            try:
                self._clear_block(grant.block, grant.size, handle)
            except BaseException:
                self.free(grant.start)
                raise
        return grant.start

    def free(self, ptr, size=None, stream=None):
        """Free what `malloc` returned.

        Parameters
        ----------
        ptr
            The address; 0 and None are fine and mean nothing.
        size
            The bytes asked of `malloc`, for a check; None for no check.
        stream
            The stream whose queued work was the last to use the memory; None for the stream of
            `malloc`.

        Raises
        ------
        InvalidArgument
            `ptr` is not the start of a live allocation made by `malloc` of this pool, or `size`
            is not its size.  Nothing is changed.
        """
        cdef uint64_t at
        cdef uint64_t bytes
        cdef uint32_t block
        cdef uint32_t generation = 0
        if ptr is None or ptr == 0:
            return
        at = as_u64(ptr, "ptr")
        bytes = ANY_SIZE if size is None else min(as_u64(size, "size"), <uint64_t>NO_SIZE)
        if self.m.foreign:
            raise _closed(self)
        lock_enter(&self.m.lock)
        block = find_freeable(self.m, at, bytes)
        if block:
            generation = self.m.blocks[block].generation
        lock_release(&self.m.lock)
        if block == 0:
            self.map.refuse(ptr, size)
        self.give(block, generation, stream)

    # The short way.

    @cython.final
    cdef int take(
        self, object size, object alignment, uint64_t stream, bint index, Grant* grant
    ) except -1:
        """A used block for the request."""
        cdef uint32_t tag = 0
        cdef uint64_t boundary = 0 if alignment is ZERO else as_alignment(alignment)
        cdef Status status = NO_FIT
        grant.size = as_size(size)
        if not self.direct:
            lock_enter(&self.m.lock)
            if not self.m.closed:
                status = map_tag(self.m, stream, &tag)
                if status == DONE:
                    status = map_alloc(self.m, grant.size, boundary, tag, index, &grant.block)
                if status == DONE:
                    self.fill(grant)
            lock_release(&self.m.lock)
        if status == DONE:
            return 0
        if self.m.closed:
            raise _closed(self)
        if status != NO_FIT:
            self.map.raise_status(status)
        grant.block = self._obtain(grant.size, boundary, stream, index)
        lock_enter(&self.m.lock)
        self.fill(grant)
        lock_release(&self.m.lock)
        return 0

    @cython.final
    cdef inline void fill(self, Grant* grant) noexcept nogil:
        """Where the granted block starts, and its generation; under the lock."""
        grant.start = self.m.blocks[grant.block].start
        grant.generation = self.m.blocks[grant.block].generation

    @cython.final
    cdef inline bint give_at_once(self, uint32_t block, uint32_t generation) noexcept:
        """`give` where nothing is in its way; False, with nothing done, where something is."""
        cdef bint free
        if self.direct:
            return False
        lock_enter(&self.m.lock)
        # Closed comes first: in a forked child the blocks may be as another thread left them.
        free = (
            not self.m.closed
            and self.m.blocks[block].generation == generation
            and not self.m.blocks[block].slack >> 31
        )
        if free:
            map_free(self.m, block, tag_of(self.m, block))
        lock_release(&self.m.lock)
        return free

    @cython.final
    cdef give(self, uint32_t block, uint32_t generation, object stream):
        """Take back a used block of this generation."""
        cdef uint32_t tag = 0
        cdef Status status = DONE
        cdef uint64_t handle = 0 if stream is None else as_stream(stream)
        cdef bint live
        cdef bint hosts = False
        if self.m.foreign:
            raise _closed(self)
        if self.direct:
            self._discard(block, generation)
            return
        lock_enter(&self.m.lock)
        live = self.m.blocks[block].generation == generation
        if live:
            hosts = self.m.blocks[block].slack >> 31
            tag = tag_of(self.m, block)
            if stream is not None:
                status = map_tag(self.m, handle, &tag)
            if status == DONE and not hosts:
                map_free(self.m, block, tag)
        lock_release(&self.m.lock)
        self.map.raise_status(status)
        if not live:
            raise StaleHandle(f"block {block} of pool {self.name!r} was freed already")
        if hosts:
            raise InvalidArgument(
                "the allocation holds the memory of another pool; close that pool first"
            )
        if self.m.closed:
            self._drain()

    # In place.

    @cython.final
    cdef bint resize(self, Allocation allocation, uint64_t size, bint zero) except -1:
        """Give an allocation another size where it lies; False, with nothing done, if it cannot."""
        cdef Resize resize
        cdef uint64_t tried = 0
        if zero:
            self._refuse_zero()
        while not self.stretch(allocation, size, &resize):
            # Free memory follows that it cannot have; what is done about that is policy.  Where
            # it comes no further, another thread took what there was.
            if resize.stretch.reach <= tried or not self._extend(
                resize.stretch.reach,
                padded(self.m, size) - (resize.stretch.reach - allocation.grant.start),
                allocation.stream_handle,
            ):
                return False
            tried = resize.stretch.reach
        if (zero or self.zeroed) and size > resize.before:
            self.clear_or_undo(allocation, size, &resize)
        self._resized()
        return True

    @cython.final
    cdef bint stretch(self, Allocation allocation, uint64_t size, Resize* resize) except -1:
        """Resize with what is free now; False if it does not reach, as `resize` says."""
        cdef Grant* grant = &allocation.grant
        cdef bint elastic = self.elastic  # Python, before the lock
        cdef bint live
        cdef bint hosts = False
        cdef bint closed = False
        cdef Status status = NO_FIT
        if self.m.foreign:
            raise _closed(self)
        lock_enter(&self.m.lock)
        resize.before = grant.size
        live = self.m.blocks[grant.block].generation == grant.generation
        if live:
            hosts = self.m.blocks[grant.block].slack >> 31 and size < grant.size
            closed = self.m.closed and size > grant.size
        if live and not hosts and not closed:
            status = map_resize(self.m, grant.block, size, elastic, &resize.stretch)
            if status == DONE:
                grant.size = size
        lock_release(&self.m.lock)
        if not live:
            raise StaleHandle(f"the allocation at {grant.start:#x} was freed already")
        if hosts:
            raise InvalidArgument(
                "the allocation holds the memory of another pool; close that pool before it shrinks"
            )
        if closed:
            raise _closed(self)
        if status != NO_FIT:
            self.map.raise_status(status)
        return status == DONE

    @cython.final
    cdef clear_or_undo(self, Allocation allocation, uint64_t size, Resize* resize):
        """Have the new bytes read as zero; if that fails, they go again."""
        cdef uint64_t dirty = resize.stretch.dirty_end - allocation.grant.start
        if min(size, dirty) <= resize.before:
            return
        try:
            self.provider.zero(
                allocation.grant.start + resize.before,
                min(size, dirty) - resize.before,
                allocation.stream_handle,
            )
        except BaseException:
            self.undo(&allocation.grant, resize)
            raise

    @cython.final
    cdef undo(self, Grant* grant, Resize* resize):
        """Take a growth back, unless another thread made more of it meanwhile."""
        cdef bint elastic = self.elastic  # Python, before the lock
        lock_enter(&self.m.lock)
        if (
            self.m.blocks[grant.block].generation == grant.generation
            and not self.m.blocks[grant.block].slack >> 31
            and map_resize(
                self.m, grant.block, resize.before, elastic, &resize.stretch
            ) == DONE
        ):
            grant.size = resize.before
        lock_release(&self.m.lock)

    def _extend(self, end, missing, stream):
        """Let `stream` have `missing` free bytes from `end` on; return whether to look again.

        Called without a lock, for a block that is to grow: free memory that it cannot have begins
        at `end`.  For pools that can put memory behind addresses.
        """
        return False

    def _resized(self):
        """An allocation has another size: for whoever keeps sums over several pools."""

    def _refuse_zero(self):
        """Raise if the provider cannot clear memory: before anything is taken."""
        if not self.provider.capabilities & Capability.ZERO:
            raise NotSupported(
                f"zero=True needs a provider that can clear memory; {self.provider!r} cannot"
            )

    def _clear_block(self, uint32_t block, uint64_t size, stream):
        """Have the first `size` bytes of a block that was just taken read as zero.

        Zeros are written, ordered on `stream`, but where nobody has been since the memory came
        from a provider that gives it so.
        """
        cdef uint64_t start
        cdef uint64_t dirty
        lock_enter(&self.m.lock)
        start = self.m.blocks[block].start
        dirty = map_dirty(self.m, block)
        lock_release(&self.m.lock)
        if min(size, dirty):
            self.provider.zero(start, min(size, dirty), stream)

    # For subclasses, whose policies are written in Python.

    def _try_take(self, size, alignment, stream, bint index):
        """Return a used block if one that fits is free, else None."""
        if self.m.closed:
            raise _closed(self)
        if size >= <uint64_t>HUGE:
            return None
        cdef uint32_t block = self.map.take(size, alignment, stream, index)
        return block if block else None

    def c_interface(self):
        """Return the pool's `CInterface`: functions for callers that hold no GIL.

        It pins the pool for the rest of the process.
        """
        if self._c_interface is None:
            from umfpy.core.cinterface import CInterface

            self._c_interface = CInterface(self)
        return self._c_interface

    #: Whether what `malloc` returned may be split and merged.
    splits = True

    #: Whether blocks grow and shrink in place.  Where not, an allocation that is resized keeps its
    #: block, and is refused what the block does not hold.
    elastic = False

    def owns(self, address):
        """Return whether `address` lies in a live allocation of this pool."""
        return self.map.describe(address) is not None

    def check(self, level="full"):
        """Check the invariants of the extent map: ``"off"``, ``"cheap"`` or ``"full"``."""
        self.map.check(level)

    @property
    def closed(self):
        """Whether the pool is closed, or belongs to the process that forked this one."""
        return self.m.closed

    def __repr__(self):
        return f"<{type(self).__name__} {self.name!r} over {self.provider!r}>"


def _closed(pool):
    return InvalidArgument(
        f"pool {pool.name!r} is closed, or belongs to the process that forked this one; make a "
        "new pool (device memory does not survive a fork: start children with 'spawn')"
    )


cdef inline uint64_t as_size(object size) except? 0xFFFFFFFFFFFFFFFF:
    """A request in bytes; what does not fit into 64 bits is as good as 2^64 - 1: never there."""
    cdef uint64_t number
    if PyLong_CheckExact(size):
        number = _as_unsigned(size)
        if number != <uint64_t>ANY_SIZE:
            return number
        PyErr_Clear()
        if size > 0:
            return <uint64_t>ANY_SIZE
    return as_u64(size, "size")


@cython.final
@cython.freelist(256)
@cython.no_gc
cdef class Allocation:
    """Memory from a pool, freed when this object is dropped."""

    def __init__(self):
        raise InvalidArgument("allocations are made by a pool: pool.allocate(size)")

    def free(self, stream=None):
        """Give the memory back now; `stream` as in `Pool.free`.

        Raises
        ------
        StaleHandle
            It was freed already.
        InvalidArgument
            Another pool lives in it.  Nothing is changed.
        """
        if not self.live:
            raise StaleHandle(f"the allocation at {self.ptr:#x} was freed already")
        self.home.give(self.grant.block, self.grant.generation, stream)
        self.live = False

    def resize(self, size, bint zero=False):
        """Give the allocation another size where it lies; return whether that was possible.

        Nothing is copied, and the address stays.  False means that somebody else has what lies
        behind it, or that the pool can put no more memory there, with nothing changed: then
        allocate, copy and free; only `allocate` has others give back.  A smaller size is always
        possible with `Pool`; whole granules behind it are free again, for its stream at once, so
        that no view made before may be used beyond it.  Pools of cells, pages or the provider's
        own allocations keep the block: any size that lies in it is possible, no other.

        Parameters
        ----------
        size
            Bytes; 0 is legal and keeps one granule.
        zero
            Whether bytes that it did not have before read as zero, for work queued on its stream;
            in a pool that always gives zeros they do in any case.

        Raises
        ------
        StaleHandle
            It was freed already.
        InvalidArgument
            `size` is none; another pool lives in it and it is to shrink; or its pool is closed and
            it is to grow.  Nothing is changed.
        """
        if not self.live:
            raise StaleHandle(f"the allocation at {self.ptr:#x} was freed already")
        return self.home.resize(self, as_size(size), zero)

    @property
    def buffer(self):
        """The memory as the driver's own library takes it, such as a ``pyopencl.Buffer``.

        It keeps this allocation alive.  NotSupported where memory is used by its address.
        """
        if not self.live:
            raise StaleHandle(f"the allocation at {self.ptr:#x} was freed already")
        memory = self.home.provider.buffer(self.ptr, self.size)
        memory.umfpy_allocation = self
        return memory

    def ipc_handle(self):
        """Return a handle with which another process opens this memory; see `umfpy.ipc.export`.

        The memory has to live until the last importer has closed its mapping.

        Raises
        ------
        NotSupported
            The provider of the memory cannot share it; the message says why.
        """
        from umfpy.ipc import export

        return export(self)

    def __reduce__(self):
        """Pickle as a handle: what arrives, in whatever process, is an `IpcMapping`."""
        from umfpy.ipc import reduce_allocation

        return reduce_allocation(self)

    def __copy__(self):
        raise TypeError("an Allocation cannot be copied: it owns its memory, which one owner frees")

    def __deepcopy__(self, memo):
        return self.__copy__()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        if self.live:
            self.free()

    def __repr__(self):
        state = f"of {self.home.name}" if self.live else "freed"
        return f"<Allocation {self.size} bytes at {self.ptr:#x}, {state}>"

    @property
    def ptr(self):
        """The address."""
        return self.grant.start

    @property
    def size(self):
        """The bytes asked for."""
        return self.grant.size

    @property
    def pool(self):
        """The pool that it came from."""
        return self.home

    @property
    @cython.nonecheck(True)
    def provider(self):
        """The pool's provider."""
        return self.home.provider

    @property
    def stream(self):
        """The native handle of the stream that it was allocated on; 0 is the default stream."""
        return self.stream_handle

    @property
    @cython.nonecheck(True)
    def id(self):
        """A number that no other allocation of this process has, before or after."""
        return self.home.serial << 64 | <uint64_t>self.grant.generation << 32 | self.grant.block

    @property
    def freed(self):
        """Whether the memory was given back."""
        return not self.live


# How an allocation is dropped.  A `__dealloc__` would have the error indicator saved and restored
# around it, which takes longer than the rest together; only the slow way has need of that.

cdef destructor finish_dropping = (<PyTypeObject*>Allocation).tp_dealloc  # as Cython made it


cdef void drop(Allocation self) noexcept:
    """The `tp_dealloc` of Allocation: nobody else knows it any more."""
    if self.live and not self.home.give_at_once(self.grant.block, self.grant.generation):
        drop_slowly(self.home, &self.grant)
    finish_dropping(<PyObject*>self)


cdef void drop_slowly(BasePool home, Grant* grant) noexcept:
    cdef PyObject* kind
    cdef PyObject* value
    cdef PyObject* trace
    if home.m.foreign:
        return
    PyErr_Fetch(&kind, &value, &trace)
    give_or_warn(home, grant)
    PyErr_Restore(kind, value, trace)


cdef void give_or_warn(BasePool home, Grant* grant) noexcept:
    """Give back.  A warning that is turned into an error ends here, not in what is under way."""
    try:
        home.give(grant.block, grant.generation, None)
    except Exception as error:  # noqa: BLE001  (a destructor cannot raise)
        warnings.warn(
            f"{grant.size} bytes at {grant.start:#x} were dropped but not freed: {error}",
            ResourceWarning,
            stacklevel=2,
        )


(<PyTypeObject*>Allocation).tp_dealloc = <destructor>drop
