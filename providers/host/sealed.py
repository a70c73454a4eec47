"""Payloads with a digest at the end, which finds what was damaged on the way."""

from __future__ import annotations

import hashlib
import struct
from typing import Any

from umfpy.errors import IpcError

#: Bytes of the digest.
_DIGEST_SIZE = 8


def seal(body: bytes) -> bytes:
    """Return `body` with its digest behind it."""
    return body + hashlib.blake2b(body, digest_size=_DIGEST_SIZE).digest()


def unseal(data: bytes, magic: bytes, what: str) -> bytes:
    """Return the body of a sealed payload, which begins with `magic`.

    Raises
    ------
    IpcError
        The bytes are something else, or were changed.
    """
    if not isinstance(data, bytes):
        raise IpcError(f"a handle of {what} is bytes, not {data!r}")
    body = data[:-_DIGEST_SIZE]
    if not body.startswith(magic):
        raise IpcError(f"{len(data)} bytes that do not describe {what}")
    if seal(body) != data:
        raise IpcError(f"a handle of {what} that was changed on the way")
    return body


def unseal_fields(data: bytes, layout: struct.Struct, magic: bytes, what: str) -> tuple[Any, ...]:
    """Return the fields of a sealed payload that is one `layout`, without the magic in front.

    Raises
    ------
    IpcError
        The bytes are something else, were changed, or are not as many.
    """
    body = unseal(data, magic, what)
    if len(body) != layout.size:
        raise IpcError(f"{len(data)} bytes are not as many as describe {what}")
    return layout.unpack(body)[1:]
