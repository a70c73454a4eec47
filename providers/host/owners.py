"""Buffers that belong to somebody else, as address and size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from umfpy.arguments import check_number
from umfpy.errors import InvalidArgument
from umfpy.providers.host.buffers import HeldBuffer


@dataclass(frozen=True)
class OwnedRange:
    """``size`` bytes at ``ptr``, valid as long as ``owner`` lives; on the ``host`` or a device."""

    ptr: int
    size: int
    owner: object
    host: bool


def find_range(source: Any, size: int | None) -> OwnedRange:
    """Return the memory of an address, an object on a CUDA device, or one with a buffer.

    Objects on a device say so by ``__cuda_array_interface__`` (Numba's CUDA Array Interface,
    version 3).

    Raises
    ------
    InvalidArgument
        An address without a size; an object that is read-only, has gaps, or is not that large.
    """
    if size is not None:
        size = check_number(size, "size", least=1)
    if isinstance(source, int) and not isinstance(source, bool):
        if size is None or source < 1:
            raise InvalidArgument(f"an address needs a size above 0: {source:#x}, size {size}")
        return OwnedRange(source, size, None, host=True)
    interface = getattr(source, "__cuda_array_interface__", None)
    found = _on_device(source, interface) if interface is not None else _on_host(source)
    if size is None:
        return found
    if size > found.size:
        raise InvalidArgument(f"{size} bytes asked for; the buffer has {found.size}")
    return OwnedRange(found.ptr, size, found.owner, found.host)


def _on_host(source: Any) -> OwnedRange:
    held = HeldBuffer(source, writable=True)
    return OwnedRange(held.ptr, held.size, held, host=True)


def _on_device(source: Any, interface: dict[str, Any]) -> OwnedRange:
    ptr, read_only = interface["data"]
    if read_only:
        raise InvalidArgument(f"{type(source).__name__} is read-only")
    itemsize = int(str(interface["typestr"])[2:])
    size = itemsize
    for length in interface["shape"]:
        size *= length
    if not _contiguous(interface, itemsize):
        raise InvalidArgument(f"{type(source).__name__} has gaps: its memory is not contiguous")
    return OwnedRange(int(ptr), size, source, host=False)


def _contiguous(interface: dict[str, Any], itemsize: int) -> bool:
    strides = interface.get("strides")
    if strides is None:
        return True
    expected = itemsize
    for length, stride in reversed(list(zip(interface["shape"], strides, strict=True))):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True
