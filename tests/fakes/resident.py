"""How much memory is behind a range of addresses of this process."""

from __future__ import annotations

import os
import struct

PAGE = os.sysconf("SC_PAGE_SIZE")
PRESENT, SWAPPED = 1 << 63, 1 << 62


def resident(ptr: int, size: int) -> int:
    """Return the bytes of whole pages in a range that have memory: /proc/pid/pagemap, proc(5).

    What the whole process has would depend on whatever else is freed meanwhile.
    """
    with open("/proc/self/pagemap", "rb", buffering=0) as pagemap:
        pagemap.seek(ptr // PAGE * 8)
        entries = pagemap.read(size // PAGE * 8)
    there = struct.unpack(f"{len(entries) // 8}Q", entries)
    return sum(PAGE for entry in there if entry & (PRESENT | SWAPPED))
