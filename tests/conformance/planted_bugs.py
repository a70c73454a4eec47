"""Providers with one defect each, named after the check that must find it, and alone.

Every class keeps the whole contract but for one sentence.  The conditions look contrived, because
they have to keep the defect out of the way of all other checks.
"""

from __future__ import annotations

import ctypes
import threading

from umfpy.errors import DriverError, InvalidArgument, IpcError, OutOfMemoryError, UmfpyError
from umfpy.provider import Capability, NativeError, Provider
from umfpy.providers.cuda import CudaVmmProvider
from umfpy.providers.emulated import emulate
from umfpy.providers.host import HostProvider

#: check: the provider that breaks it.
PLANTED: dict[str, type[Provider]] = {}


def plant(check):
    """Enter a class under the name of the check that it must fail."""

    def enter(cls):
        assert check not in PLANTED
        PLANTED[check] = cls
        return cls

    return enter


class Private(HostProvider):
    """Counts what is live, and knows its page, and what began without memory."""

    def __init__(self) -> None:
        super().__init__()
        self.page = self.granularity()
        self.owned: dict[int, int] = {}
        self.reserved: list[range] = []

    def reserve(self, size, alignment=0):
        ptr = super().reserve(size, alignment)
        self.reserved.append(range(ptr, ptr + size))
        return ptr

    def apart(self, ptr):
        return any(ptr in each for each in self.reserved)

    def usable(self, ptr):
        found = self._pieces.find(ptr)
        return found is not None and found[1].usable

    def alloc(self, size, alignment=0):
        ptr = super().alloc(size, alignment)
        self.owned[ptr] = size
        return ptr

    def free(self, ptr, size):
        super().free(ptr, size)
        self.owned.pop(ptr, None)


class Shared(HostProvider):
    """Shared memory, in this process and in the importing one."""

    def __init__(self, shared: bool = True) -> None:
        super().__init__(shared=True)
        self.page = self.granularity()


# Requests.


@plant("alloc_free")
class NoFivePages(Private):
    def alloc(self, size, alignment=0):
        if size == 5 * self.page:
            raise DriverError("mmap", 5)
        return super().alloc(size, alignment)


@plant("odd_sizes")
class WholePagesOnly(Private):
    def alloc(self, size, alignment=0):
        if size == self.page - 1:
            raise InvalidArgument("whole pages only")
        return super().alloc(size, alignment)


@plant("distinct")
class Overlaps(Private):
    fake = 0

    def alloc(self, size, alignment=0):
        if len(self.owned) == 11:
            self.fake = max(self.owned) + 64
            return self.fake
        return super().alloc(size, alignment)

    def free(self, ptr, size):
        if ptr != self.fake:
            super().free(ptr, size)


@plant("granularity")
class OddGranularity(Private):
    def granularity(self, size=0):
        return 3 * 4096 if size == 1 << 30 else super().granularity(size)


class Shifts(Private):
    """Gives some addresses a little too high."""

    def __init__(self) -> None:
        super().__init__()
        self.shifted: dict[int, int] = {}

    def shift(self, size, alignment, by):
        ptr = super().alloc(size + by, alignment) + by
        self.shifted[ptr] = by
        return ptr

    def free(self, ptr, size):
        by = self.shifted.pop(ptr, 0)
        super().free(ptr - by, size + by)


@plant("default_alignment")
class BelowTheGranule(Shifts):
    def alloc(self, size, alignment=0):
        if size == self.granule:
            return self.shift(size, alignment, 8)
        return super().alloc(size, alignment)


@plant("alignments")
class PagesAtBest(Shifts):
    def alloc(self, size, alignment=0):
        if alignment == 1 << 20:
            return self.shift(size, alignment, self.page)
        return super().alloc(size, alignment)


@plant("bad_alignments")
class RoundsAlignments(Private):
    def alloc(self, size, alignment=0):
        return super().alloc(size, 16 if alignment == 12 else alignment)


@plant("empty_sizes")
class ServesNothing(Private):
    def alloc(self, size, alignment=0):
        return super().alloc(1 if size == -1 else size, alignment)


@plant("huge_sizes")
class Wraps(Private):
    def alloc(self, size, alignment=0):
        return super().alloc(size % (1 << 64) if size > 0 else size, alignment)


@plant("refusals_keep_state")
class LosesMemoryWhenRefusing(Private):
    def alloc(self, size, alignment=0):
        if size == 1 << 62:
            super().alloc(self.page)
        return super().alloc(size, alignment)


@plant("no_leaks")
class KeepsFourPages(Private):
    def free(self, ptr, size):
        if size != 4 * self.page or ptr not in self.owned:
            super().free(ptr, size)


@plant("close_keeps_memory")
class ForgetsAtClose(Private):
    def free(self, ptr, size):
        if self._closed:
            raise InvalidArgument("closed")
        super().free(ptr, size)


# Refusals.


@plant("double_free")
class FreesTwice(Private):
    def __init__(self) -> None:
        super().__init__()
        self.freed: set[int] = set()

    def free(self, ptr, size):
        if ptr not in self.owned and ptr in self.freed and not self.apart(ptr):
            return
        super().free(ptr, size)
        self.freed.add(ptr)


@plant("foreign_pointer")
class FreesAnything(Private):
    def free(self, ptr, size):
        if ptr != 1:
            super().free(ptr, size)


@plant("interior_pointer")
class FreesInside(Private):
    def free(self, ptr, size):
        if ptr - self.granule not in self.owned:
            super().free(ptr, size)


@plant("wrong_size")
class IgnoresSizes(Private):
    def free(self, ptr, size):
        if self.owned.get(ptr) != size + 1:
            super().free(ptr, size)


# Contents.


@plant("keeps_contents")
class Scribbles(Private):
    def alloc(self, size, alignment=0):
        alone = threading.current_thread() is threading.main_thread()
        if alone and len(self.owned) == 3 and size == 2 * self.page:
            ctypes.memset(min(self.owned), 0, 4)
        return super().alloc(size, alignment)


@plant("fresh_zero")
class Dirty(Private):
    before = False

    def alloc(self, size, alignment=0):
        ptr = super().alloc(size, alignment)
        if size == 3 * self.page:
            if self.before:
                ctypes.memset(ptr + size - 1, 1, 1)
            self.before = True
        return ptr


@plant("zero_range")
class ZeroesMore(Private):
    def zero(self, ptr, size, stream=None):
        super().zero(ptr, size + (size == 1), stream)


@plant("copy_from_buffer")
class NoViews(Private):
    def copy(self, dst, src, size, stream=None):
        if isinstance(src, memoryview):
            raise InvalidArgument("no memoryview")
        super().copy(dst, src, size, stream)


@plant("copy_to_buffer")
class CopiesMore(Private):
    def copy(self, dst, src, size, stream=None):
        super().copy(dst, src, size, stream)
        if isinstance(dst, bytearray) and len(dst) > size:
            dst[size] = 0xFF


@plant("copy_between")
class CopiesLess(Private):
    def copy(self, dst, src, size, stream=None):
        both = isinstance(dst, int) and isinstance(src, int)
        super().copy(dst, src, size - both, stream)


@plant("host_access")
class CopiesNothingOut(Private):
    def copy(self, dst, src, size, stream=None):
        if not (isinstance(dst, bytearray) and len(dst) == size):
            super().copy(dst, src, size, stream)


# The life cycle.


@plant("decommit_commit")
class KeepsContents(Private):
    def decommit(self, ptr, size):
        if size == 2 * self.page and not self.apart(ptr):
            self.dalloc(ptr, size)
        else:
            super().decommit(ptr, size)


@plant("free_decommitted")
class CannotFreeDecommitted(Private):
    gone = 0

    def decommit(self, ptr, size):
        super().decommit(ptr, size)
        self.gone = ptr

    def commit(self, ptr, size, **how):
        super().commit(ptr, size, **how)
        self.gone = 0

    def free(self, ptr, size):
        if ptr == self.gone and not self.apart(ptr):
            raise DriverError("munmap", 22)
        super().free(ptr, size)


@plant("purge_force")
class PurgesHalf(Private):
    def purge_force(self, ptr, size):
        if ptr in self.owned and self.owned[ptr] == size:
            ctypes.memset(ptr, 0, size // 2)
        else:
            super().purge_force(ptr, size)


@plant("purge_lazy")
class PurgesToGarbage(Private):
    def purge_lazy(self, ptr, size):
        super().purge_lazy(ptr, size)
        ctypes.memset(ptr, 0xAB, 64)


@plant("dalloc")
class NoWayBack(Private):
    gone = 0

    def dalloc(self, ptr, size):
        super().dalloc(ptr, size)
        self.gone = ptr

    def commit(self, ptr, size, **how):
        if ptr == self.gone and len(self.owned) == 1:
            raise DriverError("mprotect", 22)
        super().commit(ptr, size, **how)


@plant("dalloc_contents")
class ForgetsAtDalloc(Private):
    gone = 0

    def dalloc(self, ptr, size):
        super().dalloc(ptr, size)
        self.gone = ptr

    def commit(self, ptr, size, **how):
        super().commit(ptr, size, **how)
        if ptr == self.gone and not self.apart(ptr):
            ctypes.memset(ptr, 0, 16)


@plant("ladder_refusals")
class PurgesAnything(Private):
    def purge_force(self, ptr, size):
        try:
            super().purge_force(ptr, size)
        except InvalidArgument:
            return


@plant("capability_refusals")
class Modest(Private):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities &= ~Capability.PURGE_LAZY

    def purge_lazy(self, ptr, size):
        return


# Pieces.


@plant("split_free")
class FreesNextDoor(Private):
    cut = False

    def split(self, ptr, size, first_size):
        super().split(ptr, size, first_size)
        self.cut |= size == 6 * self.page

    def free(self, ptr, size):
        super().free(ptr, size)
        if self.cut and self.usable(ptr + size):
            ctypes.memset(ptr + size, 0, 16)


@plant("split_merge")
class MergeMoves(Private):
    def merge(self, low, high, size):
        super().merge(low, high, size)
        ctypes.memset(high, 0, 16)


@plant("split_whole_is_gone")
class FreesTheWhole(Private):
    def free(self, ptr, size):
        found = self._pieces.find(ptr)
        if found and found[0] == ptr and size == 2 * found[1].size == 2 * self.page:
            return
        super().free(ptr, size)


@plant("split_refusals")
class SplitsIntoNothing(Private):
    def split(self, ptr, size, first_size):
        if first_size:
            super().split(ptr, size, first_size)


@plant("merge_refusals")
class MergesAnything(Private):
    def merge(self, low, high, size):
        if low != high:
            super().merge(low, high, size)


@plant("split_decommit")
class DecommitsNextDoor(Private):
    def decommit(self, ptr, size):
        super().decommit(ptr, size)
        if size == self.page and self.usable(ptr - 16):
            ctypes.memset(ptr - 16, 0, 16)


# Addresses and memory apart.


@plant("reserve_complete")
class ReservesWholesale(Private):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities &= ~Capability.SPLIT

    def split(self, ptr, size, first_size):
        raise self._lacks(Capability.SPLIT)

    def merge(self, low, high, size):
        raise self._lacks(Capability.SPLIT)


@plant("reserve_addresses")
class ReservesMemory(Private):
    def reserve(self, size, alignment=0):
        ptr = super().reserve(size, alignment)
        if alignment == 1:
            self.commit(ptr, size)
        return ptr


@plant("reserve_refusals")
class RoundsWhereItReserves(Private):
    def reserve(self, size, alignment=0):
        return super().reserve(size, 16 if alignment == 12 else alignment)


@plant("reserve_parts")
class DecommitsTheNextPart(Private):
    def decommit(self, ptr, size):
        super().decommit(ptr, size)
        if self.apart(ptr) and self.usable(ptr - 1) and self.usable(ptr + size):
            ctypes.memset(ptr + size, 0, 16)


@plant("commit_clear")
class LeavesDirt(Private):
    def __init__(self) -> None:
        super().__init__()
        self.dirty: set[int] = set()

    def commit(self, ptr, size, *, clear=True, chunk_size=None):
        fresh = not self.usable(ptr) and not self.chunks(ptr, size)
        super().commit(ptr, size, clear=clear, chunk_size=chunk_size)
        if not clear:
            self.dirty.add(ptr)
        elif fresh and ptr in self.dirty:
            ctypes.memset(ptr + size - 1, 1, 1)


@plant("commit_chunk_size")
class ChunksOfNothing(Private):
    def commit(self, ptr, size, *, clear=True, chunk_size=None):
        super().commit(ptr, size, clear=clear, chunk_size=chunk_size or None)


@plant("chunks_tile")
class LosesTheLastChunk(Private):
    def chunks(self, ptr, size):
        found = super().chunks(ptr, size)
        return found[:-1] if size == 6 * self.page else found


@plant("chunks_of_alloc")
class ChunksOfWhatWasReserved(Private):
    def chunks(self, ptr, size):
        return super().chunks(ptr, size) if self.apart(ptr) or size != 3 * self.page else []


@plant("remap")
class RemapsNextDoor(Private):
    def remap(self, sources, to, size):
        super().remap(sources, to, size)
        end = sum(sources[-1])
        if len(sources) == 2 and self.usable(end):
            ctypes.memset(end, 0, 16)


@plant("remap_refusals")
class RemapsNothing(Private):
    def remap(self, sources, to, size):
        if sources:
            super().remap(sources, to, size)


@plant("remap_exported")
class RemapsWhatOthersSee(CudaVmmProvider):
    def __init__(self) -> None:
        emulate("cuda", memory="1GiB")
        super().__init__()

    def remap(self, sources, to, size):
        for chunk in self._backing.inside(*sources[0]) if sources else ():
            chunk.exported = False
        super().remap(sources, to, size)


@plant("reserve_free")
class KeepsWhatWasMerged(Private):
    def free(self, ptr, size):
        if size != 6 * self.page or not self.apart(ptr):
            super().free(ptr, size)


# Threads.


@plant("concurrent_alloc_free")
class FewThreads(Private):
    def __init__(self) -> None:
        super().__init__()
        self.threads: set[int] = set()

    def alloc(self, size, alignment=0):
        self.threads.add(threading.get_ident())
        if len(self.threads) > 4:
            raise RuntimeError("too many threads")
        return super().alloc(size, alignment)


@plant("free_in_other_thread")
class OwnThreadOnly(Private):
    def __init__(self) -> None:
        super().__init__()
        self.homes: dict[int, int] = {}

    def alloc(self, size, alignment=0):
        ptr = super().alloc(size, alignment)
        self.homes[ptr] = threading.get_ident()
        return ptr

    def free(self, ptr, size):
        if self.homes.get(ptr, threading.get_ident()) != threading.get_ident():
            raise DriverError("munmap", 1)
        super().free(ptr, size)


@plant("native_error_per_thread")
class OneErrorForAll(Private):
    error: NativeError | None = None

    def alloc(self, size, alignment=0):
        try:
            return super().alloc(size, alignment)
        except UmfpyError:
            self.error = super().native_error()
            raise

    def native_error(self):
        return self.error


# Questions.


@plant("identity")
class Nameless(Private):
    name = ""


@plant("complete")
class SynchronizesByAttribute(Private):
    def __init__(self) -> None:
        super().__init__()
        self.capabilities |= Capability.STREAMS
        self.synchronize = lambda: None


@plant("properties")
class KnowsNothing(Private):
    def properties(self, ptr):
        return super().properties(ptr) or None


@plant("memory_info")
class MoreThanAll(Private):
    def memory_info(self):
        return 2, 1


@plant("native_error")
class ErrorAsText(Private):
    def native_error(self):
        return "ENOMEM"


@plant("synchronize")
class SynchronizesOnce(Private):
    before = False

    def __init__(self) -> None:
        super().__init__()
        self.capabilities |= Capability.STREAMS

    def synchronize(self):
        if self.before:
            raise DriverError("synchronize", 999)
        self.before = True


# IPC.


class OpensACopy(Shared):
    """Gives the importer a copy, so that the exporter sees nothing of what it writes."""

    with_descriptors = False

    def __init__(self, shared: bool = True) -> None:
        super().__init__()
        self.copies: dict[int, int] = {}

    def ipc_open(self, payload, descriptors=()):
        ptr = super().ipc_open(payload, descriptors)
        if bool(descriptors) != self.with_descriptors:
            return ptr
        size = self.ipc_size(payload)
        copy = self.alloc(size)
        self.copy(copy, ptr, size)
        super().ipc_close(ptr, size)
        self.copies[copy] = size
        return copy

    def ipc_close(self, ptr, size):
        if self.copies.pop(ptr, None):
            self.free(ptr, size)
        else:
            super().ipc_close(ptr, size)


@plant("ipc_round_trip")
class OpensACopyByProcess(OpensACopy):
    pass


@plant("ipc_descriptors")
class OpensACopyByDescriptor(OpensACopy):
    with_descriptors = True


@plant("ipc_stale")
class OpensWhatIsFreed(OpensACopy):
    def ipc_open(self, payload, descriptors=()):
        try:
            return HostProvider.ipc_open(self, payload, descriptors)
        except IpcError as error:
            if "was freed" not in str(error):
                raise
        size = self.ipc_size(payload)
        ptr = self.alloc(size)
        self.copies[ptr] = size
        return ptr


@plant("ipc_hostile_payloads")
class OpensNothing(Shared):
    def ipc_open(self, payload, descriptors=()):
        return super().ipc_open(payload, descriptors) if payload else self.alloc(self.page)


@plant("ipc_export_refusals")
class ExportsAnything(Shared):
    def ipc_export(self, ptr, size):
        try:
            return super().ipc_export(ptr, size)
        except InvalidArgument:
            return b"anything"


@plant("ipc_size")
class ExportsMore(Shared):
    def ipc_size(self, payload):
        return super().ipc_size(payload) + 1


@plant("ipc_range")
class ExportsTheFirstPageAlone(Shared):
    def ipc_range(self, ptr, size, root):
        return root[0], min(root[1], self.page)


@plant("ipc_close_refusals")
class ClosesAnything(Shared):
    def ipc_close(self, ptr, size):
        try:
            super().ipc_close(ptr, size)
        except InvalidArgument:
            return


class CannotBeMade(HostProvider):
    """Not even a provider can be had."""

    def __init__(self) -> None:
        raise OutOfMemoryError("none")
