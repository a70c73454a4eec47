"""Arrays of other libraries, taken over by DLPack without a copy.

>>> provider = fixed_provider(numpy.empty(1 << 20, "u1"))   # doctest: +SKIP
>>> pool = umfpy.Pool(provider)                             # doctest: +SKIP
"""

from __future__ import annotations

import math
from typing import Any

from umfpy.errors import InvalidArgument, NotSupported
from umfpy.integrations.arrays_cuda import LEGACY
from umfpy.integrations.arrays_dtype import dlpack_type
from umfpy.integrations.arrays_memory import c_order, memory_of
from umfpy.integrations.arrays_place import CUDA_FAMILY, DeviceType
from umfpy.integrations.dlpack_capsule import VERSION, Taken
from umfpy.providers.host import FixedProvider

_HOST = frozenset({DeviceType.CPU, DeviceType.CUDA_HOST})


class Tensor:
    """An array that another library owns, and keeps as long as this object, or what is made of it.

    Attributes
    ----------
    ptr
        The address of the first element; for OpenCL the ``cl_mem`` that has it.
    shape, strides
        By axis; strides in bytes.
    dtype
        The element type's name, as NumPy's.
    device
        DLPack's device type and ordinal.
    read_only
        Whether the owner forbids writing.
    nbytes
        Bytes of all elements.
    contiguous
        Whether they lie one after the other, in C order.
    """

    def __init__(self, capsule: Any) -> None:
        self._taken = taken = Taken(capsule)
        self._element = dlpack_type(*taken.dtype)
        self.device = taken.device
        self.shape = taken.shape
        steps = c_order(self.shape) if taken.strides is None else taken.strides
        self.strides = tuple(step * self._element.itemsize for step in steps)
        self.nbytes = math.prod(self.shape) * self._element.itemsize
        self.read_only = taken.read_only
        self.contiguous = _contiguous(self.shape, steps)
        self.ptr = taken.data

    @property
    def dtype(self) -> str:
        return self._element.name

    def as_buffer(self) -> memoryview:
        """Return its bytes by the buffer protocol.

        Raises NotSupported for arrays with gaps, or on a device.
        """
        if self.device[0] not in _HOST or not self.contiguous:
            raise NotSupported(f"only contiguous arrays on the host have a buffer, not {self!r}")
        return memory_of(self, self.ptr, self.nbytes, read_only=self.read_only)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA Array Interface, version 3; only for arrays on CUDA."""
        if self.device[0] not in CUDA_FAMILY or self._element.typestr is None:
            raise AttributeError(f"{self!r} has no CUDA Array Interface")
        return {
            "shape": self.shape,
            "typestr": self._element.typestr,
            "data": (self.ptr, self.read_only),
            "strides": None if self.contiguous else self.strides,
            "version": 3,
            "stream": LEGACY,  # what its exporter was asked to order it on
        }

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __repr__(self) -> str:
        return f"<Tensor {self.shape} {self.dtype} at {self.ptr:#x} on DLPack device {self.device}>"


def from_dlpack(exporter: Any) -> Tensor:
    """Return an exporter's array: of NumPy, CuPy, PyTorch, or anybody with ``__dlpack__``.

    An array on CUDA is ready for work on the legacy default stream.

    Raises
    ------
    InvalidArgument
        It exports nothing, or a type of elements that is not known here.
    NotSupported
        It speaks a newer DLPack.
    BufferError
        The exporter refused, in its own words.
    """
    if not hasattr(exporter, "__dlpack__") or not hasattr(exporter, "__dlpack_device__"):
        raise InvalidArgument(f"{type(exporter).__name__} has no __dlpack__: it exports no array")
    device, _ = exporter.__dlpack_device__()
    ordering = {"stream": LEGACY} if device in CUDA_FAMILY else {}
    try:
        capsule = exporter.__dlpack__(max_version=VERSION, **ordering)
    except TypeError:
        # Made before DLPack 1.0.
        capsule = exporter.__dlpack__(**ordering)
    return Tensor(capsule)


def fixed_provider(exporter: Any, *, granule: int | None = None) -> FixedProvider:
    """Return a provider that hands out the memory of somebody's array, in pieces.

    The array lives as long as the provider.  `granule` is as of `FixedProvider`.

    Raises
    ------
    InvalidArgument
        The array is read-only, has gaps, is too small, or exports nothing.
    NotSupported
        It is on a device that is neither the host nor CUDA.
    """
    tensor = from_dlpack(exporter)
    if not tensor.contiguous:
        raise InvalidArgument(f"{tensor!r} has gaps: its memory is not contiguous")
    kind, ordinal = tensor.device
    if kind in _HOST:
        return FixedProvider(tensor.as_buffer(), granule=granule)
    if kind not in CUDA_FAMILY:
        raise NotSupported(f"{tensor!r} is neither on the host nor on CUDA")
    memory_type = "managed" if kind == DeviceType.CUDA_MANAGED else "device"
    return FixedProvider(tensor, memory_type=memory_type, device=ordinal, granule=granule)


def _contiguous(shape: tuple[int, ...], steps: tuple[int, ...]) -> bool:
    """Return whether elements lie one after the other; `steps` are in elements."""
    if 0 in shape:
        return True
    axes = zip(shape, steps, c_order(shape), strict=True)
    return all(length == 1 or step == wanted for length, step, wanted in axes)
