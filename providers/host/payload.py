"""What a process must know in order to map a range of another process's file."""

from __future__ import annotations

import hashlib
import os
import struct
from dataclasses import dataclass

from umfpy.errors import IpcError

_MAGIC = b"umfpyH1\0"
_FIXED = struct.Struct("<8sqQiBQQQQQ16sH")
#: Longest path that the kernel takes (PATH_MAX, limits.h).
_LONGEST_PATH = 4096
#: One more than the largest offset in a file: off_t is signed.
_LONGEST_FILE = 1 << 63
#: Bytes of a digest, and of the slot that holds it.
DIGEST_SIZE = 16


@dataclass(frozen=True)
class Payload:
    """An exported range.

    The exporter is process ``pid``, which began at clock tick ``started``; it has the file open
    as ``fd``, of pages of ``1 << page_shift`` bytes, at ``path`` if it has a name.  ``dev`` and
    ``inode`` say that it is still the same file.  The range is ``size`` bytes at ``offset``.  At
    ``slot`` the file holds the digest of all this for as long as the export is valid; ``nonce``
    makes every export different.
    """

    pid: int
    started: int
    fd: int
    page_shift: int
    dev: int
    inode: int
    offset: int
    size: int
    slot: int
    nonce: bytes
    path: str = ""

    def pack(self) -> bytes:
        """Return the payload as bytes."""
        path = os.fsencode(self.path)
        fixed = _FIXED.pack(
            _MAGIC,
            self.pid,
            self.started,
            self.fd,
            self.page_shift,
            self.dev,
            self.inode,
            self.offset,
            self.size,
            self.slot,
            self.nonce,
            len(path),
        )
        return fixed + path

    def digest(self) -> bytes:
        """Return the 16 bytes that stand in the slot: any change to the payload changes them."""
        return hashlib.blake2b(self.pack(), digest_size=DIGEST_SIZE).digest()

    @classmethod
    def unpack(cls, data: bytes) -> Payload:
        """Return what `pack` packed.

        Raises
        ------
        IpcError
            The bytes are not such a payload, or not a possible one.
        """
        if not isinstance(data, bytes):
            raise IpcError(f"a handle of shared host memory is bytes, not {data!r}")
        if len(data) < _FIXED.size or data[: len(_MAGIC)] != _MAGIC:
            raise IpcError(f"{len(data)} bytes that do not describe shared host memory")
        *fields, path_length = _FIXED.unpack_from(data)
        path = data[_FIXED.size :]
        if len(path) != path_length or path_length > _LONGEST_PATH or b"\0" in path:
            raise IpcError(f"a handle of shared host memory with {len(path)} stray bytes")
        values = [*fields[1:], os.fsdecode(path)]
        payload = cls(*values)
        payload._check()
        return payload

    def _check(self) -> None:
        possible = (
            12 <= self.page_shift <= 30
            and self.offset % (1 << self.page_shift) == 0
            and self.slot % DIGEST_SIZE == 0
            and 0 < self.size < _LONGEST_FILE - self.offset
            and self.slot < _LONGEST_FILE
            and 0 < self.pid < 1 << 31
        )
        if not possible:
            raise IpcError(
                f"a handle of shared host memory with an impossible range: {self.size} bytes at "
                f"{self.offset}, pages of 2^{self.page_shift}"
            )
