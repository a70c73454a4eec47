"""What another process must know in order to open memory of a driver's pool."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from umfpy.errors import IpcError
from umfpy.providers.cuda.vmm_sharing import Exporter
from umfpy.providers.host.sealed import seal, unseal_fields

_MAGIC = b"umfpyP1\0"
_WHAT = "memory of a CUDA pool"
#: Bytes of a CUmemPoolPtrExportData (cuda.h).
POINTER_SIZE = 64
_LAYOUT = struct.Struct(f"<8s16s{Exporter.LAYOUT}16si{POINTER_SIZE}sQQ")


@dataclass(frozen=True)
class PooledPayload:
    """``size`` bytes at ``offset`` of the allocation that the driver calls ``pointer``.

    It is in the pool for which ``pool_fd`` stands in the exporting process, and which has the
    random number ``pool_id``, on the device ``uuid``.
    """

    uuid: str
    exporter: Exporter
    pool_id: bytes
    pool_fd: int
    pointer: bytes
    offset: int
    size: int

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        return seal(
            _LAYOUT.pack(
                _MAGIC,
                bytes.fromhex(self.uuid),
                *self.exporter.fields,
                self.pool_id,
                self.pool_fd,
                self.pointer,
                self.offset,
                self.size,
            )
        )

    @classmethod
    def unpack(cls, data: bytes) -> PooledPayload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        uuid, pid, started, ticket, nonce, *rest = unseal_fields(data, _LAYOUT, _MAGIC, _WHAT)
        payload = cls(uuid.hex(), Exporter(pid, started, ticket, nonce), *rest)
        possible = (
            0 < payload.size < 1 << 63
            and payload.offset < 1 << 63
            and payload.pool_fd >= 0
            and payload.exporter.possible
        )
        if not possible:
            raise IpcError(
                f"a handle of {_WHAT} with an impossible range or process: {payload.size} bytes "
                f"at {payload.offset}, process {pid}"
            )
        return payload
