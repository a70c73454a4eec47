"""Allocations as arrays of other libraries, without a copy.

>>> a = numpy.from_dlpack(umfpy.view(pool.allocate(4096), dtype="f4"))   # doctest: +SKIP
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from umfpy.arguments import check_flag, check_number
from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument, NotSupported, StaleHandle
from umfpy.integrations import arrays_cuda as cuda
from umfpy.integrations.arrays_dtype import ElementType, element_type
from umfpy.integrations.arrays_memory import c_order, lengths_of, memory_of
from umfpy.integrations.arrays_place import CPU, DeviceType, Place, place_of
from umfpy.integrations.dlpack_capsule import make_capsule
from umfpy.ipc import IpcMapping
from umfpy.pools import captures
from umfpy.provider import Capability

_ARRAY_INTERFACE = 3  # the version, of NumPy's and of CUDA's


class DLPackError(NotSupported, BufferError):
    """Memory that cannot be passed on as the consumer wants it; BufferError, as DLPack has it."""


def view(
    memory: Allocation | IpcMapping,
    shape: int | Sequence[int] | None = None,
    dtype: Any = "u1",
    *,
    offset: int = 0,
    read_only: bool = False,
) -> ArrayView:
    """Return an array over memory, for every library that exchanges arrays.

    Parameters
    ----------
    memory
        What a pool gave out, or what `open_ipc` opened.
    shape
        Lengths of the axes, in C order; if not given, one axis of all that follows `offset`.
    dtype
        Element type: ``"float32"``, ``"f4"``, a NumPy or PyTorch dtype, ``"bfloat16"``.
    offset
        Where the array starts in the memory, in bytes.
    read_only
        Whether consumers may only read.

    Returns
    -------
    ArrayView
        It has those protocols that the memory allows, and refuses the others with the reason.

    Raises
    ------
    InvalidArgument
        The array does not lie in the memory, or `dtype` means nothing here.
    StaleHandle
        The memory was freed, or the mapping closed.
    """
    if not isinstance(memory, (Allocation, IpcMapping)):
        raise InvalidArgument(f"an Allocation or an IpcMapping is needed, not {memory!r}")
    element = element_type(dtype)
    offset = check_number(offset, "offset", least=None)
    if not 0 <= offset <= memory.size:
        raise InvalidArgument(f"offset {offset} is not in memory of {memory.size} bytes")
    lengths = _lengths(shape, element, memory.size - offset)
    check_flag(read_only, "read_only")
    return ArrayView(memory, offset, lengths, element, read_only=read_only)


class ArrayView:
    """Memory as a C-contiguous array; made by `view`.

    Whatever is made of it keeps the memory from going back to its pool, or stays mapped.  To
    free the memory by hand while such arrays live leaves them without any.

    Notes
    -----
    ``numpy.from_dlpack``, ``cupy.from_dlpack`` and ``torch.from_dlpack`` take it; so do
    ``numpy.asarray`` for memory that the host may touch and ``cupy.asarray`` for CUDA's, and
    from Python 3.12 on ``memoryview`` itself.  Before the host gets the memory, what is queued
    on the device is waited for; consumers on a CUDA device are ordered by stream, as their
    protocol says, behind the stream that the memory was allocated on.
    """

    def __init__(
        self,
        memory: Allocation | IpcMapping,
        offset: int,
        shape: tuple[int, ...],
        element: ElementType,
        *,
        read_only: bool,
    ) -> None:
        self._memory = memory
        self._place: Place = place_of(memory.provider, memory.ptr)
        self._element = element
        self.ptr: int = memory.ptr + offset
        self.shape = shape
        self.read_only = read_only
        self.nbytes = math.prod(shape) * element.itemsize
        self._check_alive()

    @property
    def dtype(self) -> str:
        """The element type's name, as NumPy's."""
        return self._element.name

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, by axis."""
        return tuple(self._element.itemsize * step for step in c_order(self.shape))

    # Host memory.

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """NumPy's array interface, version 3; only for memory that the host may touch."""
        self._require(self._place.host, "the host may not touch", "__array_interface__")
        return self._interface()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Raise NotSupported with the reason: NumPy asks for it where all else was refused.

        Without it ``numpy.asarray`` would make an array of one Python object, this view.
        """
        self._check_alive()
        if self._place.host:
            raise NotSupported(
                f"NumPy has no elements of type {self.dtype}: give the view another dtype"
            )
        raise NotSupported(
            f"NumPy gets no array: {self._refusal('the host may not touch')}; copy it to the host "
            "first"
        )

    def as_buffer(self) -> memoryview[Any]:
        """Return the memory by the buffer protocol, with shape and format.

        Raises NotSupported if the host may not touch it, or the protocol has no such format.
        """
        self._check_alive()
        if not self._place.host:
            raise NotSupported(self._refusal("the host may not touch"))
        if self._element.format is None:
            raise NotSupported(f"the buffer protocol has no format for {self.dtype}; use NumPy")
        self._settle()
        flat = memory_of(self, self.ptr, self.nbytes, read_only=self.read_only)
        if not self.nbytes:
            return flat.cast(self._element.format)
        return flat.cast(self._element.format, self.shape)

    def __buffer__(self, flags: int) -> memoryview[Any]:
        """Return `as_buffer`'s: Python 3.12 asks for it (PEP 688)."""
        return self.as_buffer()

    # CUDA memory.

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA Array Interface, version 3; only for memory of CUDA.

        ``stream`` is the one that the memory was allocated on: consumers order behind it.
        """
        self._require(self._place.cuda, "belongs to another device than CUDA", "CUDA's")
        return self._interface() | {"stream": self._stream or cuda.LEGACY}

    # Any memory.

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's device type and ordinal."""
        if self._place.device is None:
            raise DLPackError(self._refusal("has no name in DLPack"))
        return self._place.device

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a DLPack capsule over the memory (DLPack 1.0, and what was before).

        Parameters
        ----------
        stream
            The consumer's.  CUDA: 1 is the legacy default stream, which None means too, 2 the
            per-thread one, -1 asks for no ordering, 0 is refused.  On the CPU None alone.
        max_version
            The newest DLPack that the consumer knows; from (1, 0) on it gets a versioned capsule.
        dl_device
            Where the consumer wants the memory: here, or on the CPU if the host may touch it.
        copy
            True is refused: nothing is ever copied.

        Raises
        ------
        DLPackError
            The memory cannot be passed on so.
        InvalidArgument
            `stream` is none.
        StaleHandle
            The memory was freed.
        """
        self._check_alive()
        if copy:
            raise DLPackError("a view copies nothing: copy=True is for the consumer to do")
        versioned = max_version is not None and max_version[0] >= 1
        if self.read_only and not versioned:
            raise DLPackError("this view is read-only, which DLPack can say from version 1.0 on")
        device = self._wanted(dl_device)
        self._order(device, stream)
        data, keep = self._data(device)
        return make_capsule(
            data,
            device=device,
            dtype=self._element.dlpack,
            shape=self.shape,
            strides=c_order(self.shape),
            read_only=self.read_only,
            versioned=versioned,
            keep=(self, keep),
        )

    def __repr__(self) -> str:
        return f"<ArrayView {self.shape} {self.dtype} at {self.ptr:#x} of {self._memory!r}>"

    # How it is done.

    @property
    def _stream(self) -> int:
        return int(getattr(self._memory, "stream", 0))

    def _interface(self) -> dict[str, Any]:
        self._require(self._element.typestr is not None, f"is of {self.dtype}", "NumPy's names")
        if self._place.host:
            self._settle()
        return {
            "shape": self.shape,
            "typestr": self._element.typestr,
            "data": (self.ptr if self.nbytes else 0, self.read_only),
            "strides": None,
            "version": _ARRAY_INTERFACE,
        }

    def _wanted(self, dl_device: tuple[int, int] | None) -> tuple[int, int]:
        if self._place.host and dl_device is not None and tuple(dl_device) == CPU:
            return CPU
        device = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != device:
            raise DLPackError(
                f"the memory is on DLPack's device {device} and cannot be had on "
                f"{tuple(dl_device)} without a copy"
            )
        return device

    def _order(self, device: tuple[int, int], stream: int | None) -> None:
        if not self._place.cuda or device == CPU:
            if device == CPU and stream is not None:
                raise InvalidArgument(f"the CPU has no streams: stream must be None, not {stream}")
            if stream != cuda.NO_ORDER:
                self._settle()
            return
        consumer = cuda.consumer_stream(stream)
        if self._place.host and stream is None:
            # The consumer may be the host, which waits for no stream.
            self._settle()
        elif consumer != cuda.NO_ORDER:
            cuda.order(device[1], self._stream, consumer)

    def _data(self, device: tuple[int, int]) -> tuple[int, Any]:
        """Return what DLPack's `data` is, and what it needs to stay alive."""
        if device[0] == DeviceType.OPENCL and self.nbytes:
            buffer = self._place.provider.buffer(self.ptr, self.nbytes)
            return buffer.int_ptr, buffer
        return self.ptr if self.nbytes else 0, None

    def _settle(self) -> None:
        """Wait for the device: the host is about to look."""
        provider = self._place.provider
        if Capability.STREAMS in provider.capabilities:
            with captures.waiting(f"a view of {provider.memory_type} memory", provider):
                provider.synchronize()

    def _require(self, condition: bool, why: str, protocol: str) -> None:
        """Raise AttributeError, so that ``hasattr`` says no, unless `condition` holds."""
        self._check_alive()
        if not condition:
            raise AttributeError(f"no {protocol}: {self._refusal(why)}")

    def _refusal(self, why: str) -> str:
        provider = self._place.provider
        return f"{provider.memory_type} memory of {provider!r} {why}"

    def _check_alive(self) -> None:
        memory = self._memory
        gone = memory.freed if isinstance(memory, Allocation) else memory.closed
        if gone:
            raise StaleHandle(f"the memory at {memory.ptr:#x} is freed or closed already")


def _lengths(
    shape: int | Sequence[int] | None, element: ElementType, available: int
) -> tuple[int, ...]:
    if shape is None:
        count, rest = divmod(available, element.itemsize)
        if rest:
            raise InvalidArgument(
                f"{available} bytes are no whole number of {element.name}; give a shape"
            )
        return (count,)
    lengths = lengths_of(shape)
    needed = math.prod(lengths) * element.itemsize
    if needed > available:
        raise InvalidArgument(
            f"{lengths} of {element.name} are {needed} bytes; there are {available}"
        )
    return lengths
