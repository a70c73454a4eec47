"""A device of the emulated driver, with streams that can be captured."""

from __future__ import annotations

from typing import Any

from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import CudaProvider, MemoryManager, emulate
from umfpy.manager.cuda_calls import CudaCalls

SIZE = 4 * KIB
LAYOUT = [sliced(64 * KIB, max_slice_size=16 * KIB), exclusive(MIB)]
PROPERTIES = {"max_page_size": MIB, "alignment": 512}
NON_BLOCKING = 1


class Device:
    """A device of the emulated driver, three streams, and what is made of them."""

    def __init__(self) -> None:
        self.emu = emulate("cuda", memory="1GiB")
        self.call = CudaCalls()
        self.provider = CudaProvider(0)
        self.call("cuInit", 0)
        self.call("cuCtxPushCurrent", self.call("cuDevicePrimaryCtxRetain", 0))
        self.streams = [int(self.call("cuStreamCreate", NON_BLOCKING)) for _ in range(3)]
        self.before = self.emu.live()

    def manager(self, **options: Any) -> MemoryManager:
        return MemoryManager(self.provider, LAYOUT, PROPERTIES, **options)

    def write(self, ptr: int, data: bytes) -> None:
        self.provider.copy(ptr, data, len(data))

    def read(self, ptr: int, size: int = SIZE) -> bytes:
        data = bytearray(size)
        self.provider.copy(data, ptr, size)
        return bytes(data)

    def copy(self, to: int, source: int, stream: int, size: int = SIZE) -> None:
        self.call("cuMemcpyDtoDAsync", to, source, size, stream)

    def set(self, to: int, value: int, stream: int, size: int = SIZE) -> None:
        self.call("cuMemsetD8Async", to, value, size, stream)

    def wait(self, stream: int) -> None:
        self.call("cuStreamSynchronize", stream)

    def close(self) -> None:
        for stream in self.streams:
            self.call("cuStreamDestroy", stream)
        self.call("cuCtxPopCurrent")
        self.call("cuDevicePrimaryCtxRelease", 0)
        self.provider.close()
