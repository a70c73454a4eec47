"""The frame around a handle on its way between processes.

Handles come from outside.  The frame says at once, and in words, what is wrong with bytes that
are no handle of this version: cut short, of another version, changed on the way.  It does not
say who made them: anybody can compute the digest, and what lies inside is checked as well.

Layout, little endian::

    8 bytes   magic
    u16       version
    u8        byte order of the machine, "l" or "b"
    u8        0
    u32       length of the whole, frame included
    32 bytes  BLAKE2b (RFC 7693) of all other bytes
    ...       the content
"""

from __future__ import annotations

import hashlib
import struct
import sys

from umfpy.errors import InvalidArgument, IpcError

#: Raised whenever the content's layout changes: a process opens handles of its own version only.
VERSION = 1
#: The longest handle in bytes; what is longer was not made by umfpy.
MAX_LENGTH = 1 << 17

_MAGIC = b"umfpyIPC"
_HEAD = struct.Struct("<8sHBBI")
_DIGEST_SIZE = 32
_FRAME = _HEAD.size + _DIGEST_SIZE
_ORDER = ord(sys.byteorder[0])


def seal(content: bytes) -> bytes:
    """Return `content` in a frame."""
    head = _HEAD.pack(_MAGIC, VERSION, _ORDER, 0, _FRAME + len(content))
    return head + _digest(head, content) + content


def unseal(data: bytes | bytearray | memoryview) -> bytes:
    """Return the content of a frame.

    Raises
    ------
    InvalidArgument
        `data` is not bytes.
    IpcError
        It is not a whole and unchanged frame of this version and byte order.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidArgument(f"an IPC handle is made of bytes, not of {type(data).__name__}")
    data = bytes(data)
    if len(data) < _FRAME:
        raise IpcError(f"an IPC handle has at least {_FRAME} bytes, not {len(data)}: cut short?")
    magic, version, order, reserved, length = _HEAD.unpack_from(data)
    _check_head(magic, version, order)
    if length > MAX_LENGTH or length != len(data):
        raise IpcError(
            f"this IPC handle says that it has {length} bytes, and has {len(data)}: it was cut "
            "short, or something follows it"
        )
    head, content = data[: _HEAD.size], data[_FRAME:]
    if reserved or data[_HEAD.size : _FRAME] != _digest(head, content):
        raise IpcError("this IPC handle was changed on the way: its digest does not fit")
    return content


def _check_head(magic: bytes, version: int, order: int) -> None:
    if magic != _MAGIC:
        raise IpcError(f"these bytes are no IPC handle of umfpy: they begin with {magic!r}")
    if version != VERSION:
        raise IpcError(
            f"this IPC handle is of version {version}, and this umfpy reads version {VERSION}: "
            "use one umfpy in both processes"
        )
    if order != _ORDER:
        raise IpcError(
            f"this IPC handle is from a machine of another byte order ({chr(order)!r}); memory "
            "can be shared within one machine only"
        )


def _digest(head: bytes, content: bytes) -> bytes:
    return hashlib.blake2b(head + content, digest_size=_DIGEST_SIZE).digest()
