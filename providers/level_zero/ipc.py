"""What another process must know in order to open a Level Zero allocation."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

from umfpy.errors import IpcError
from umfpy.providers.host.exports import start_time
from umfpy.providers.host.sealed import seal, unseal_fields
from umfpy.providers.level_zero.constants import ZE_MAX_DEVICE_UUID_SIZE, ZE_MAX_IPC_HANDLE_SIZE

_MAGIC = b"umfpyZ1\0"
_LAYOUT = struct.Struct(f"<8s{ZE_MAX_DEVICE_UUID_SIZE}s{ZE_MAX_IPC_HANDLE_SIZE}sQQqQQQ")
#: Where a handle has the exporter's file descriptor: in its first int.
_DESCRIPTOR = struct.Struct("=i")
#: `LevelZeroPayload.inode` if the handle holds no descriptor.
_NO_FILE = 0


@dataclass(frozen=True)
class LevelZeroPayload:
    """The driver's handle of a native allocation, and which part of it is meant.

    The exporter is process ``pid``, which began at clock tick ``started``.  The handle's first
    int is a descriptor there, of the file ``inode`` on ``dev``: the number alone may stand for
    another file by the time somebody asks for it.
    """

    uuid: str
    handle: bytes
    offset: int
    size: int
    pid: int
    started: int
    dev: int
    inode: int

    @classmethod
    def of_this_process(cls, uuid: str, handle: bytes, offset: int, size: int) -> LevelZeroPayload:
        """Return the payload for a handle that the driver has just made."""
        pid = os.getpid()
        try:
            status = os.fstat(_descriptor(handle))
            dev, inode = status.st_dev, status.st_ino
        except OSError:
            # Not every driver's handles have a descriptor; then they say all by themselves.
            dev, inode = 0, _NO_FILE
        return cls(uuid, handle, offset, size, pid, start_time(pid), dev, inode)

    @property
    def fd(self) -> int:
        """The exporter's descriptor, -1 if the handle has none."""
        return _descriptor(self.handle) if self.inode != _NO_FILE else -1

    def with_descriptor(self, fd: int) -> bytes:
        """Return the handle as it is to be opened here, with this process's descriptor."""
        return _DESCRIPTOR.pack(fd) + self.handle[_DESCRIPTOR.size :]

    def check_file(self, fd: int) -> None:
        """Raise IpcError unless `fd` is of the file that the handle was made with."""
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) != (self.dev, self.inode):
            raise IpcError(
                f"descriptor {self.fd} of process {self.pid} is of another file by now: the "
                "allocation was freed or its export released"
            )

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        body = _LAYOUT.pack(
            _MAGIC,
            bytes.fromhex(self.uuid),
            self.handle,
            self.offset,
            self.size,
            self.pid,
            self.started,
            self.dev,
            self.inode,
        )
        return seal(body)

    @classmethod
    def unpack(cls, data: bytes) -> LevelZeroPayload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        uuid, *rest = unseal_fields(data, _LAYOUT, _MAGIC, "Level Zero memory")
        payload = cls(uuid.hex(), *rest)
        possible = (
            0 < payload.size < 1 << 63
            and payload.offset < 1 << 63
            and 0 < payload.pid < 1 << 31
            and (payload.inode == _NO_FILE or payload.fd >= 0)
        )
        if not possible:
            raise IpcError(
                f"a Level Zero handle with an impossible range or process: {payload.size} bytes "
                f"at {payload.offset}, process {payload.pid}"
            )
        return payload


def _descriptor(handle: bytes) -> int:
    fd: int = _DESCRIPTOR.unpack_from(handle)[0]
    return fd
