"""What another process must know in order to open a CUDA allocation."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from umfpy.errors import IpcError
from umfpy.providers.host.sealed import seal, unseal_fields

_MAGIC = b"umfpyC1\0"
#: Bytes of a CUipcMemHandle: CU_IPC_HANDLE_SIZE (cuda.h).
HANDLE_SIZE = 64
_LAYOUT = struct.Struct(f"<8s16s{HANDLE_SIZE}sQQ")


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
        return seal(_LAYOUT.pack(_MAGIC, uuid, self.handle, self.offset, self.size))

    @classmethod
    def unpack(cls, data: bytes) -> CudaPayload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        uuid, handle, offset, size = unseal_fields(data, _LAYOUT, _MAGIC, "CUDA memory")
        if not 0 < size < 1 << 63 or offset >= 1 << 63:
            raise IpcError(f"a CUDA handle with an impossible range: {size} bytes at {offset}")
        return cls(uuid.hex(), handle, offset, size)
