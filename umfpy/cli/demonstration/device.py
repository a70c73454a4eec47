"""The GPU that the demonstration runs on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import umfpy
from umfpy.errors import DriverUnavailable
from umfpy.providers.cuda import CudaProvider
from umfpy.providers.emulated.library import is_emulated
from umfpy.units import format_size

if TYPE_CHECKING:
    from umfpy.providers.emulated import EmulatedCuda

_EMULATED_MEMORY = "16GiB"


class CountedCuda(CudaProvider):
    """Counts what reaches the driver, on a real one as on an emulated one."""

    def __init__(self, device: int = 0) -> None:
        super().__init__(device)
        self.allocs = 0
        self.frees = 0
        self.exports = 0
        self.opens = 0

    def alloc(self, size: int, alignment: int = 0) -> int:
        self.allocs += 1
        return super().alloc(size, alignment)

    def free(self, ptr: int, size: int) -> None:
        self.frees += 1
        super().free(ptr, size)

    def ipc_export(self, ptr: int, size: int) -> bytes:
        self.exports += 1
        return super().ipc_export(ptr, size)

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        self.opens += 1
        return super().ipc_open(payload, descriptors)


class Device:
    """The first CUDA device: a real one if there is one, else an emulated one."""

    def __init__(self) -> None:
        self.emulated: EmulatedCuda | None = None
        try:
            CudaProvider().close()
        except DriverUnavailable:
            self.emulated = umfpy.emulate("cuda", memory=_EMULATED_MEMORY)

    def open(self) -> CountedCuda:
        """Return a new provider on it."""
        return CountedCuda()

    def clock_us(self) -> float:
        """Return the modelled time spent in the driver; 0 on a real one."""
        return self.emulated.clock_us if self.emulated else 0.0

    def describe(self) -> str:
        """Return what it is, for people."""
        provider = self.open()
        _, total = provider.memory_info()
        provider.close()
        kind = "an emulated GPU" if is_emulated() else "this machine's GPU"
        return f"{kind} with {format_size(total)}"
