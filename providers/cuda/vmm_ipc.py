"""What another process must know in order to map memory of several chunks."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from umfpy.errors import IpcError
from umfpy.providers.cuda.vmm_sharing import Exporter
from umfpy.providers.host.sealed import seal, unseal

_MAGIC = b"umfpyV1\0"
_WHAT = "mapped CUDA memory"
_HEAD = struct.Struct(f"<8s16s{Exporter.LAYOUT}QI")
_CHUNK = struct.Struct("<iQ")

#: No address is beyond this, and so no allocation.
_LARGEST = 1 << 47


@dataclass(frozen=True)
class VmmPayload:
    """``size`` bytes on the device ``uuid``: ``chunks`` of (the exporter's descriptor, bytes)."""

    uuid: str
    exporter: Exporter
    size: int
    chunks: tuple[tuple[int, int], ...]

    @property
    def fds(self) -> list[int]:
        """The exporter's descriptors."""
        return [fd for fd, _ in self.chunks]

    @property
    def length(self) -> int:
        """Bytes to map."""
        return sum(size for _, size in self.chunks)

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        head = _HEAD.pack(
            _MAGIC,
            bytes.fromhex(self.uuid),
            *self.exporter.fields,
            self.size,
            len(self.chunks),
        )
        return seal(head + b"".join(_CHUNK.pack(*chunk) for chunk in self.chunks))

    @classmethod
    def unpack(cls, data: bytes) -> VmmPayload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        body = unseal(data, _MAGIC, _WHAT)
        if len(body) < _HEAD.size:
            raise IpcError(f"{len(data)} bytes are too few to describe {_WHAT}")
        _, uuid, pid, started, ticket, nonce, size, count = _HEAD.unpack_from(body)
        if len(body) != _HEAD.size + count * _CHUNK.size:
            raise IpcError(f"a handle of {_WHAT} that does not have its {count} chunks")
        chunks = tuple(_CHUNK.iter_unpack(body[_HEAD.size :]))
        payload = cls(uuid.hex(), Exporter(pid, started, ticket, nonce), size, chunks)
        payload._check()
        return payload

    def _check(self) -> None:
        possible = (
            0 < self.size <= self.length < _LARGEST
            and all(size > 0 and fd >= 0 for fd, size in self.chunks)
            and self.exporter.possible
        )
        if not possible:
            raise IpcError(
                f"a handle of {_WHAT} with an impossible range or process: {self.size} bytes in "
                f"chunks of {self.length}, process {self.exporter.pid}"
            )
