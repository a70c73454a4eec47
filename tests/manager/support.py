"""The entries of layouts that the tests are about, and memory read and written by address."""

from __future__ import annotations

import ctypes
import random
from multiprocessing.queues import Queue

from umfpy import IpcHandle, MemoryConfiguration, emulate, open_ipc

KIB, MIB = 1 << 10, 1 << 20

#: What the specification's tests assume where they say nothing else.
PROPERTIES = {"max_page_size": 128 * MIB, "alignment": 32}


def sliced(page: int, cap: int | None = None, **fields: object) -> dict[str, object]:
    return {
        "type": "sliced",
        "page_size": page,
        "max_slice_size": page,
        "max_pool_size": cap,
        **fields,
    }


def exclusive(largest: int, **fields: object) -> dict[str, object]:
    return {"type": "exclusive", "max_alloc_size": largest, **fields}


def layout(*entries: object) -> MemoryConfiguration:
    return MemoryConfiguration.explicit(entries)


_BYTES = random.Random(1).randbytes(1 << 16)


def pattern(seed: int, size: int) -> bytes:
    """Bytes that differ by place and by owner, up to 32 KiB: a shifted or foreign copy shows."""
    start = seed * 7919 % (len(_BYTES) - size)
    return _BYTES[start : start + size]


def write(ptr: int, data: bytes) -> None:
    ctypes.memmove(ptr, data, len(data))


def read(ptr: int, size: int) -> bytes:
    return ctypes.string_at(ptr, size)


def read_and_write(kind: str, handle: IpcHandle, results: Queue[bytes]) -> None:
    """In another process: put what is at the handle, and write there."""
    if kind == "cuda":
        emulate("cuda", memory="16GiB")
    with open_ipc(handle) as mapping:
        results.put(bytes(mapping.copy_to_host()))
        mapping.copy_from_host(b"seen")
