"""Calls through the unmodified bindings."""

from __future__ import annotations

import ctypes
import os
from typing import Any

#: Of the blocks that graphs work on.
SIZE = 4096


def pattern(seed: int, size: int = SIZE) -> bytes:
    """Bytes that say where they belong."""
    return bytes((seed * 37 + i * 7 + (i >> 8) * 11) % 256 for i in range(size))


class Cuda:
    """``cu("cuMemAlloc", 64)`` is the answer of a call that must succeed."""

    def __init__(self) -> None:
        from cuda.bindings import __version__, driver

        self.driver = driver
        self.bindings = int(__version__.partition(".")[0])

    def __call__(self, name: str, *arguments: Any) -> Any:
        code, *answers = getattr(self.driver, name)(*arguments)
        assert int(code) == 0, f"{name}{arguments} answered {code!r}"
        return answers[0] if len(answers) == 1 else tuple(answers) or None

    def error(self, name: str, *arguments: Any) -> int:
        """The number that a call answers."""
        return int(getattr(self.driver, name)(*arguments)[0])

    def alloc(self, size: int) -> int:
        return int(self("cuMemAlloc", size))

    def write(self, address: int, data: bytes) -> None:
        self("cuMemcpyHtoD", address, data, len(data))

    def read(self, address: int, size: int) -> bytes:
        data = bytearray(size)
        self("cuMemcpyDtoH", data, address, size)
        return bytes(data)

    def create_context(self, flags: int = 0, device: int = 0) -> Any:
        """A new context, current; bindings of CUDA 13 take one parameter more."""
        parameters = (None,) if self.bindings >= 13 else ()
        return self("cuCtxCreate", *parameters, flags, device)

    def by_location(self, name: str) -> str:
        """The variant of a function that takes a location, not a device."""
        return name if self.bindings >= 13 else f"{name}_v2"

    def properties(self, device: int = 0, shareable: bool = False) -> Any:
        """What cuMemCreate wants: memory on a device."""
        d = self.driver
        wanted = d.CUmemAllocationProp()
        wanted.type = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = device
        if shareable:
            wanted.requestedHandleTypes = self.posix
        return wanted

    @property
    def posix(self) -> Any:
        types = self.driver.CUmemAllocationHandleType
        return types.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    def access(self, device: int = 0, flags: int = 3) -> Any:
        """What cuMemSetAccess wants: reading and writing from a device."""
        d = self.driver
        wanted = d.CUmemAccessDesc()
        wanted.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = device
        wanted.flags = d.CUmemAccess_flags(flags)
        return wanted

    def pool_properties(self, shareable: bool = False, limit: int = 0) -> Any:
        d = self.driver
        wanted = d.CUmemPoolProps()
        wanted.allocType = d.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        wanted.location.type = d.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        wanted.location.id = 0
        wanted.maxSize = limit
        if shareable:
            wanted.handleTypes = self.posix
        return wanted

    def bytes_of(self, opaque: Any, size: int = 64) -> bytes:
        """The bytes of a handle that bindings of some versions do not show."""
        return ctypes.string_at(opaque.getPtr(), size)

    def opaque(self, kind: str, data: bytes) -> Any:
        """A handle of this kind with these bytes."""
        made = getattr(self.driver, kind)()
        ctypes.memmove(made.getPtr(), data, len(data))
        return made

    def begin(self, device: int = 0) -> Any:
        """Initialise, and make the primary context current."""
        self("cuInit", 0)
        context = self("cuDevicePrimaryCtxRetain", device)
        self("cuCtxSetCurrent", context)
        return context


def peer_names() -> dict[str, Any]:
    """What code in a second process finds."""
    return {"cu": Cuda(), "os": os}
