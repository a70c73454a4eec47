"""What another process must know in order to open a CUDA allocation."""

from __future__ import annotations

import ctypes
import hashlib
import struct
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from umfpy.errors import IpcError

_MAGIC = b"umfpyC1\0"
#: CU_IPC_HANDLE_SIZE (cuda.h).
HANDLE_SIZE = 64
_LAYOUT = struct.Struct(f"<8s16s{HANDLE_SIZE}sQQ")
#: Bytes of the digest at the end, which finds what was damaged on the way.
_DIGEST_SIZE = 8


@dataclass(frozen=True)
class CudaPayload:
    """The driver's handle of a native allocation, on which device, and which part is meant."""

    uuid: str
    handle: bytes
    offset: int
    size: int

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        uuid = bytes.fromhex(self.uuid)
        body = _LAYOUT.pack(_MAGIC, uuid, self.handle, self.offset, self.size)
        return body + _digest(body)

    @classmethod
    def unpack(cls, data: bytes) -> CudaPayload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        body, digest = data[: _LAYOUT.size], data[_LAYOUT.size :]
        if len(body) != _LAYOUT.size or body[: len(_MAGIC)] != _MAGIC:
            raise IpcError(f"{len(data)} bytes that do not describe CUDA memory")
        if digest != _digest(body):
            raise IpcError("a CUDA handle that was changed on the way")
        _, uuid, handle, offset, size = _LAYOUT.unpack(body)
        if not 0 < size < 1 << 63 or offset >= 1 << 63:
            raise IpcError(f"a CUDA handle with an impossible range: {size} bytes at {offset}")
        return cls(uuid.hex(), handle, offset, size)


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()


def handle_bytes(handle: Any) -> bytes:
    """Return what a CUipcMemHandle holds; not every version of the bindings has its field."""
    return ctypes.string_at(handle.getPtr(), HANDLE_SIZE)


def handle_from_bytes(bindings: ModuleType, data: bytes) -> Any:
    """Return a CUipcMemHandle that holds these 64 bytes."""
    handle = bindings.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), data, HANDLE_SIZE)
    return handle
