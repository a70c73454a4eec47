"""Level Zero memory for SYCL's Python packages: dpctl, dpnp, numba-dpex."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from umfpy.core.extents import innermost
from umfpy.core.pool import Allocation
from umfpy.errors import InvalidArgument, StaleHandle
from umfpy.integrations.arrays_dtype import ElementType, element_type
from umfpy.integrations.arrays_memory import lengths_of
from umfpy.ipc import IpcMapping
from umfpy.provider import Provider

#: The version of the protocol (dpctl, ``__sycl_usm_array_interface__``).
_VERSION = 1

#: The names of providers whose memory is unified shared memory of a Level Zero context.
_PROVIDERS = ("level_zero", "level_zero_vmm")


class UsmArray:
    """Memory as an array that SYCL's packages take: it has ``__sycl_usm_array_interface__``.

    Made by `as_usm`.  It keeps the allocation alive, and who made an array of it keeps this.

    Attributes
    ----------
    base
        The allocation or mapping.
    shape
        Elements in each dimension, C order.
    typestr
        NumPy's name of the element type.
    """

    def __init__(
        self,
        base: Allocation | IpcMapping,
        shape: tuple[int, ...],
        element: ElementType,
        syclobj: Any,
    ) -> None:
        self.base = base
        self.shape = shape
        self.typestr = element.typestr
        self._syclobj = syclobj

    @property
    def __sycl_usm_array_interface__(self) -> dict[str, Any]:
        """The array, as version 1 of the protocol describes it.

        Raises
        ------
        StaleHandle
            The allocation was freed.
        """
        _check_live(self.base)
        return {
            "data": (self.base.ptr, False),
            "shape": self.shape,
            "strides": None,
            "offset": 0,
            "typestr": self.typestr,
            "version": _VERSION,
            "syclobj": self._syclobj,
        }

    def __repr__(self) -> str:
        return f"<UsmArray {self.shape} of {self.typestr} at {self.base.ptr:#x}>"


def as_usm(
    allocation: Allocation | IpcMapping,
    shape: int | Sequence[int] | None = None,
    dtype: Any = "u1",
    *,
    syclobj: Any = None,
) -> UsmArray:
    """Return an array over Level Zero memory that SYCL's packages take without a copy.

    Parameters
    ----------
    allocation
        Memory of `umfpy.LevelZeroProvider` or `umfpy.LevelZeroVmmProvider`, through any pools;
        or memory of another process, from `umfpy.open_ipc`.
    shape
        Elements in each dimension; None: one dimension with all of the allocation.
    dtype
        The element type, as NumPy names it: ``"f4"``, ``"float32"``, a dtype.
    syclobj
        What says to which SYCL context the memory belongs: a ``dpctl.SyclQueue``, a
        ``dpctl.SyclContext`` or a filter string.  None: the filter string of the device, which
        stands for the default context of SYCL's platform.

    Raises
    ------
    InvalidArgument
        Not such memory; the elements do not fit in it; or, without a shape, do not fill it.
    StaleHandle
        The allocation was freed.

    Notes
    -----
    SYCL uses only memory of its own context.  So the provider has to be made with that one:
    ``LevelZeroProvider(context=...)`` with the native handle of the queue's context.
    """
    if not isinstance(allocation, (Allocation, IpcMapping)):
        raise InvalidArgument(f"an Allocation or an IpcMapping is needed, not {allocation!r}")
    _check_live(allocation)
    provider = _native_provider(allocation)
    element = element_type(dtype)
    if element.typestr is None:
        raise InvalidArgument(f"the SYCL array interface has no elements of type {element}")
    extent = _shape(allocation.size, shape, element)
    if syclobj is None:
        syclobj = f"level_zero:gpu:{max(provider.device, 0)}"
    return UsmArray(allocation, extent, element, syclobj)


def _native_provider(allocation: Allocation | IpcMapping) -> Provider:
    """Return the provider at the bottom, below all pools."""
    extent = innermost(allocation.ptr)
    provider = allocation.provider if extent is None else extent.root.provider
    if provider.name not in _PROVIDERS:
        raise InvalidArgument(
            f"SYCL's packages take memory of Level Zero, and this is of {provider.name!r}; "
            "allocate it from a LevelZeroProvider"
        )
    return provider


def _shape(size: int, shape: int | Sequence[int] | None, element: ElementType) -> tuple[int, ...]:
    if shape is None:
        if size % element.itemsize:
            raise InvalidArgument(
                f"{size} bytes are no whole number of {element} elements; pass a shape"
            )
        return (size // element.itemsize,)
    lengths = lengths_of(shape)
    needed = math.prod(lengths) * element.itemsize
    if needed > size:
        raise InvalidArgument(
            f"an array of shape {lengths} of {element} needs {needed} bytes, and the "
            f"allocation has {size}"
        )
    return lengths


def _check_live(memory: Allocation | IpcMapping) -> None:
    gone = memory.freed if isinstance(memory, Allocation) else memory.closed
    if gone:
        raise StaleHandle(f"the memory at {memory.ptr:#x} was freed or closed")
