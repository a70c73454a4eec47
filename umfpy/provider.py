"""The contract between umfpy and a source of memory.

A provider hands out coarse memory and caches nothing; pools sit on top of it and do the rest.
Two methods make one, `alloc` and `free`; everything else is optional and announced in
`capabilities`, so that a pool never has to try a call in order to learn that it is missing.
"""

from __future__ import annotations

import abc
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, NoReturn, TypeAlias

from umfpy.closing import Closing
from umfpy.errors import InvalidArgument, NotSupported

#: One side of a copy: an address, or any object with the buffer protocol (host memory).
Location: TypeAlias = "int | bytes | bytearray | memoryview"


class Capability(enum.Flag):
    """What a provider can do beyond `alloc` and `free`."""

    NONE = 0
    SPLIT = enum.auto()  #: a part of an allocation can be freed: `split` and `merge`
    COMMIT = enum.auto()  #: `commit` and `decommit`
    PURGE_LAZY = enum.auto()  #: `purge_lazy`
    PURGE_FORCE = enum.auto()  #: `purge_force`
    PURGE = PURGE_LAZY | PURGE_FORCE
    DALLOC = enum.auto()  #: `dalloc`
    ZERO = enum.auto()  #: `zero`
    COPY = enum.auto()  #: `copy`
    IPC = enum.auto()  #: `ipc_export`, `ipc_release`, `ipc_open`, `ipc_close`
    STREAMS = enum.auto()  #: work is queued on streams: `synchronize` waits for it
    HOST_ACCESS = enum.auto()  #: the host may read and write the memory at its address
    FRESH_ZERO = enum.auto()  #: memory that comes from `alloc` reads as zero
    RESERVE = enum.auto()  #: addresses and memory apart: `reserve`, `chunks` and `remap`


#: The methods that each capability promises.
_METHODS: Mapping[Capability, tuple[str, ...]] = {
    Capability.SPLIT: ("split", "merge"),
    Capability.COMMIT: ("commit", "decommit"),
    Capability.PURGE_LAZY: ("purge_lazy",),
    Capability.PURGE_FORCE: ("purge_force",),
    Capability.DALLOC: ("dalloc",),
    Capability.ZERO: ("zero",),
    Capability.COPY: ("copy",),
    Capability.IPC: ("ipc_export", "ipc_open", "ipc_close"),
    Capability.STREAMS: ("synchronize",),
    Capability.RESERVE: ("reserve", "chunks", "remap"),
}


class ChunkInfo(NamedTuple):
    """A range with one physical object behind it, which is backed and dropped as a whole.

    ``exported`` says that another process may have it open, so that its memory can never be
    taken elsewhere.
    """

    ptr: int
    size: int
    exported: bool = False


@dataclass(frozen=True)
class NativeError:
    """The last failure of the driver in this thread.

    ``call`` is the driver function, ``code`` and ``name`` the driver's number and name for the
    failure, and ``message`` the driver's own words.
    """

    call: str
    code: int
    name: str
    message: str


class Provider(Closing, abc.ABC):
    """A source of coarse memory.  Subclass it to add a back end; see ``providers/README.md``.

    Addresses are integers, sizes and alignments are bytes.  A provider may be called from any
    thread, and leaves the caller's driver state (such as the current CUDA context) as it was.
    A method that raises has changed nothing.
    """

    #: A short name for people and for IPC handles, such as ``"cuda"``.
    name: ClassVar[str] = ""

    #: What this provider can do; a class attribute, or set by ``__init__``.
    capabilities: Capability = Capability.NONE

    #: ``"device"``, ``"host"``, ``"managed"`` or ``"shared"``.
    memory_type: str = "device"

    #: The driver that the memory comes from, for providers that share one; `name` if empty.
    driver: str = ""

    #: The device's ordinal as its own driver counts, -1 for host memory.
    device: int = -1

    #: The unit in which pools cut this memory up, and what an alignment of 0 means: a power of
    #: two, at most what `alloc` aligns to by itself.
    granule: int = 512

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if isinstance(cls.__dict__.get("capabilities"), Capability):
            check_complete(cls, cls.capabilities)

    @abc.abstractmethod
    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` fresh bytes.

        Parameters
        ----------
        size
            Bytes, at least 1; pools ask for multiples of ``granularity(size)``.
        alignment
            A power of two, or 0 for what the provider gives by itself (at least `granule`).

        Raises
        ------
        OutOfMemoryError
            The source has no such memory left.
        AlignmentError
            `alignment` is not a power of two, or more than the source can give.
        DriverError
            Anything else that the driver answered.
        """

    @abc.abstractmethod
    def free(self, ptr: int, size: int) -> None:
        """Release memory and addresses; `ptr` and `size` are those of `alloc`.

        With `Capability.SPLIT` any piece left by `split` may be freed by itself.
        """

    @abc.abstractmethod
    def granularity(self, size: int = 0) -> int:
        """Return the unit in bytes that the source itself allocates in, as the driver says.

        A power of two.  `size` is the request, for sources where the unit depends on it.
        """

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the unit that makes the best use of the source; at least the granularity."""
        return self.granularity(size)

    # The life cycle, gentlest rung first.  `size` is a whole piece in the sense of `split`.

    def dalloc(self, ptr: int, size: int) -> None:
        """Mark a range unusable; it keeps its addresses and its backing."""
        raise self._lacks(Capability.DALLOC)

    def purge_lazy(self, ptr: int, size: int) -> None:
        """Let the contents go whenever the system likes: reads see the old bytes or zero."""
        raise self._lacks(Capability.PURGE_LAZY)

    def decommit(self, ptr: int, size: int) -> None:
        """Drop the backing and keep the addresses; an access is an error until `commit`."""
        raise self._lacks(Capability.COMMIT)

    def commit(
        self, ptr: int, size: int, *, clear: bool = True, chunk_size: int | None = None
    ) -> None:
        """Back a decommitted range again, which then reads as zero; or undo `dalloc`, which
        keeps the contents.

        Parameters
        ----------
        clear
            False if what was decommitted may have any contents now, where that is cheaper.
        chunk_size
            The bytes of the chunks to back it with, where the source has a choice: a multiple
            of its granularity.  None leaves it to the source.
        """
        raise self._lacks(Capability.COMMIT)

    def purge_force(self, ptr: int, size: int) -> None:
        """Drop the contents at once: the next access reads zero."""
        raise self._lacks(Capability.PURGE_FORCE)

    # Addresses and memory apart, for pools that take memory to where it is needed.

    def reserve(self, size: int, alignment: int = 0) -> int:
        """Return addresses for `size` bytes without memory behind them: a decommitted piece.

        `split` cuts it at multiples of `granularity`, and `commit` backs the parts.  Raises as
        `alloc`.
        """
        raise self._lacks(Capability.RESERVE)

    def chunks(self, ptr: int, size: int) -> Sequence[ChunkInfo]:
        """Return the chunks that lie wholly inside a range, by address.

        Only between two of them, or where there is no memory, can a piece be split.
        """
        raise self._lacks(Capability.RESERVE)

    def remap(self, sources: Sequence[tuple[int, int]], to: int, size: int) -> None:
        """Take the memory of whole pieces to other addresses.

        Parameters
        ----------
        sources
            (address, bytes) of committed pieces that nobody uses, none of them exported; they
            are decommitted afterwards.
        to, size
            A decommitted piece of as many bytes as the chunks of all sources have; it is
            committed afterwards, with their memory in that order.  Its contents may be anything.
        """
        raise self._lacks(Capability.RESERVE)

    # Native split and merge.  Without them pools split logically, and free whole allocations.

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Make two pieces of one, of `first_size` and ``size - first_size`` bytes."""
        raise self._lacks(Capability.SPLIT)

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of `size` bytes out of two neighbours in the same state."""
        raise self._lacks(Capability.SPLIT)

    # Contents.

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros, ordered on `stream`; without one, done when the call returns."""
        raise self._lacks(Capability.ZERO)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy `size` bytes between addresses and host buffers, ordered as `zero` is."""
        raise self._lacks(Capability.COPY)

    def synchronize(self) -> None:
        """Wait until all work queued on the device so far is done."""
        raise self._lacks(Capability.STREAMS)

    # IPC, of a whole allocation, or of the part that `ipc_range` says: pools add the offset.

    def ipc_range(self, ptr: int, size: int, root: tuple[int, int]) -> tuple[int, int]:
        """Return (address, bytes) of what has to be exported so that others can open a range.

        Parameters
        ----------
        ptr, size
            A range that has memory behind all of it.
        root
            (address, bytes) of the allocation or reservation that the range lies in.  What is
            returned lies in it, holds the range, and is the same for as long as that is in use;
            by default it is the root itself.
        """
        return root

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to open the allocation at `ptr`, or that part of one.

        `ptr` and `size` are those of `alloc`, or what `ipc_range` returned.
        """
        raise self._lacks(Capability.IPC)

    def ipc_release(self, payload: bytes) -> None:
        """Give an export back; called once, before its memory is freed."""

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        """Return the file descriptors that have to travel with `payload`, in this process."""
        return ()

    def ipc_size(self, payload: bytes) -> int | None:
        """Return how many bytes `payload` is of, or None if it does not say.

        Handles are checked with it before they are opened, so that a forged one cannot lead
        beyond what is mapped.  Raises IpcError as `ipc_open` does.
        """
        return None

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's allocation and return its address here.

        `descriptors` are duplicates of the exporter's, where a transport carried them; without
        them the provider fetches what it needs from the exporting process.  They stay the
        caller's to close.

        Raises
        ------
        IpcError
            The payload is not one of this provider's, its memory or its process is gone, or the
            system does not let this process at it; the message says what to allow.
        """
        raise self._lacks(Capability.IPC)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned."""
        raise self._lacks(Capability.IPC)

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Return a provider on which this process opens handles made under `scope`."""
        raise NotSupported(f"provider {cls.name!r} cannot open memory of other processes")

    def ipc_scope(self) -> str:
        """Return what `for_ipc` needs to find the same device, such as its UUID."""
        return ""

    # Questions.

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return what the driver knows of an address: keys and values of the provider's own."""
        return {}

    def buffer(self, ptr: int, size: int) -> Any:
        """Return what the driver's own library takes for memory, where an address will not do.

        The object does not keep the memory alive, but takes attributes, so that it can be made to.
        """
        raise NotSupported(f"memory of provider {self.name!r} is used by its address, as it is")

    def memory_info(self) -> tuple[int, int] | None:
        """Return (free, total) bytes of the device, or None where that means nothing."""
        return None

    def native_error(self) -> NativeError | None:
        """Return this thread's last failure, in the driver's words."""
        return None

    def trim(self, keep_bytes: int = 0) -> int:
        """Give what is kept for reuse, beyond `keep_bytes`, to the device; return the bytes.

        That is memory behind no address of the caller's: pools ask for it when they give up all
        that they can.  Most providers keep nothing.  Raises what the driver answered; the rest
        is kept.
        """
        return 0

    def close(self) -> None:
        """Let go of the driver.  Memory that is still allocated stays the caller's to free.

        At the end of a `with` block as well.
        """

    def __repr__(self) -> str:
        """Return the kind, and what memory it is: ``CudaProvider(0, 'managed')``."""
        device = f"{self.device}, " if self.device >= 0 else ""
        return f"{type(self).__name__}({device}{self.memory_type!r})"

    def __reduce__(self) -> NoReturn:
        refuse_copy(self)

    def _lacks(self, capability: Capability) -> NotSupported:
        return NotSupported(
            f"provider {self.name or type(self).__name__!r} has no {capability.name}; "
            f"it has {self.capabilities}"
        )


def refuse_copy(holder: object) -> NoReturn:
    """Raise the TypeError that `copy` and `pickle` of a provider or pool end in."""
    kind = type(holder).__name__
    raise TypeError(
        f"a {kind} cannot be copied or pickled: it has memory of this process.  Here, use the same "
        f"one from any thread; another process makes its own {kind}, and opens memory of this one "
        "by umfpy.open_ipc(handle) with what allocation.ipc_handle() returned"
    )


def check_complete(cls: type[Provider], capabilities: Capability) -> None:
    """Raise InvalidArgument if `cls` announces a capability without its methods."""
    for capability, methods in _METHODS.items():
        if capability not in capabilities:
            continue
        for method in methods:
            if getattr(cls, method) is getattr(Provider, method):
                raise InvalidArgument(
                    f"{cls.__name__} announces {capability.name} but does not define "
                    f"{method}(); define it, or drop the capability"
                )


def check_provider_usable(provider: object) -> Provider:
    """Return `provider` if a pool can stand on it; InvalidArgument, with the reason, if not."""
    if not isinstance(provider, Provider):
        raise InvalidArgument(
            f"a pool needs a umfpy.Provider or another pool, not {type(provider).__name__}"
        )
    check_complete(type(provider), provider.capabilities)
    granule = provider.granule
    if granule < 1 or granule & (granule - 1):
        raise InvalidArgument(
            f"{type(provider).__name__}.granule is {granule}; it must be a power of two"
        )
    return provider
