"""IPC of a piece of an upstream allocation: upstream's export, and where the piece lies in it."""

from __future__ import annotations

import hashlib
import struct
import threading
from collections.abc import Sequence
from typing import NamedTuple

from umfpy.errors import InvalidArgument, IpcError
from umfpy.provider import Provider

_PLACE = struct.Struct("<QQ")  # upstream's size, offset of the piece
_DIGEST_SIZE = 8


class Opened(NamedTuple):
    """What a mapping of a piece stands on: upstream's mapping."""

    base: int
    size: int


class PieceIpc:
    """Exports and opens pieces; one upstream export and one upstream mapping for each call.

    A payload is the place, a digest over place and upstream's payload, and that payload.
    """

    def __init__(self, upstream: Provider) -> None:
        self._upstream = upstream
        self._lock = threading.Lock()
        self._opened: dict[int, list[Opened]] = {}

    def export(self, base: int, size: int, offset: int) -> bytes:
        """Export the piece at `offset` of the upstream allocation of `size` bytes at `base`."""
        place = _PLACE.pack(size, offset)
        payload = self._upstream.ipc_export(base, size)
        return place + _digest(place, payload) + payload

    def release(self, payload: bytes) -> None:
        self._upstream.ipc_release(_parse(payload)[2])

    def descriptors(self, payload: bytes) -> Sequence[int]:
        return self._upstream.ipc_descriptors(_parse(payload)[2])

    def open(self, payload: bytes, descriptors: Sequence[int]) -> int:
        """Return the address of the piece in this process."""
        size, offset, inner = _parse(payload)
        base = self._upstream.ipc_open(inner, descriptors)
        with self._lock:
            self._opened.setdefault(base + offset, []).append(Opened(base, size))
        return base + offset

    def close(self, ptr: int) -> None:
        """Close one mapping of the piece at `ptr`."""
        with self._lock:
            mappings = self._opened.get(ptr)
            if not mappings:
                raise InvalidArgument(f"{ptr:#x} was not opened by this provider")
            mapping = mappings.pop()
            if not mappings:
                del self._opened[ptr]
        try:
            self._upstream.ipc_close(*mapping)
        except BaseException:
            with self._lock:
                self._opened.setdefault(ptr, []).append(mapping)
            raise


def _digest(place: bytes, payload: bytes) -> bytes:
    return hashlib.blake2b(place + payload, digest_size=_DIGEST_SIZE).digest()


def _parse(payload: bytes) -> tuple[int, int, bytes]:
    """Return upstream's size, the offset and upstream's payload; IpcError if they are not so."""
    head = _PLACE.size + _DIGEST_SIZE
    place, digest, inner = payload[: _PLACE.size], payload[_PLACE.size : head], payload[head:]
    if len(payload) < head or digest != _digest(place, inner):
        raise IpcError(f"{len(payload)} bytes are no export of a piece, or were changed on the way")
    size, offset = _PLACE.unpack(place)
    if offset >= size:
        raise IpcError(f"an export of {size} bytes cannot have a piece at {offset}")
    return size, offset, inner
