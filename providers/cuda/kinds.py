"""The kinds of memory that the CUDA driver allocates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umfpy.provider import Capability

#: CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP: pinned for every context, and visible to
#: the device at the same address (cuda.h).
_PORTABLE_MAPPED = 0x01 | 0x02
#: CU_MEM_ATTACH_GLOBAL: any stream on any device may use it (cuda.h).
_ATTACH_GLOBAL = 0x1

_EVERY = Capability.ZERO | Capability.COPY | Capability.STREAMS


@dataclass(frozen=True)
class Kind:
    """How one kind of memory is taken (``take(bytes, *arguments)``) and given back."""

    take: str
    arguments: tuple[int, ...]
    give: str
    capabilities: Capability


KINDS: Mapping[str, Kind] = {
    "device": Kind("cuMemAlloc", (), "cuMemFree", _EVERY | Capability.IPC),
    "host": Kind(
        "cuMemHostAlloc", (_PORTABLE_MAPPED,), "cuMemFreeHost", _EVERY | Capability.HOST_ACCESS
    ),
    "managed": Kind("cuMemAllocManaged", (_ATTACH_GLOBAL,), "cuMemFree", _EVERY),
}
