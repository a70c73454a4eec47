"""The short way from CuPy's request for memory to a pool."""

from typing import Any

from umfpy.integrations.cupy import Allocator

DEVICE_SIGNATURE: bytes
STREAM_SIGNATURE: bytes

class Fast:
    allocator: Allocator
    def __init__(
        self, allocator: Allocator, *, device: Any, stream: Any, memory: Any, pointer: Any
    ) -> None: ...
    def __call__(self, size: int) -> Any: ...
    def current(self) -> tuple[int, int] | None: ...
