"""Which device memory is on, as those who exchange arrays name it."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

from umfpy.provider import Capability, Provider


class DeviceType(enum.IntEnum):
    """DLDeviceType (dlpack.h): those that umfpy has memory of."""

    CPU = 1
    CUDA = 2
    CUDA_HOST = 3
    OPENCL = 4
    CUDA_MANAGED = 13
    ONEAPI = 14


CPU = (int(DeviceType.CPU), 0)

#: DLPack's device for a CUDA provider's type of memory.
_CUDA_TYPES = {
    "device": DeviceType.CUDA,
    "host": DeviceType.CUDA_HOST,
    "managed": DeviceType.CUDA_MANAGED,
}

#: The devices that speak CUDA: their arrays have a CUDA stream and `__cuda_array_interface__`.
CUDA_FAMILY = frozenset(int(one) for one in _CUDA_TYPES.values())


@dataclass(frozen=True)
class Place:
    """Where memory lies.

    ``device`` is DLPack's (type, ordinal), or None if it has no name there; ``host`` says
    whether the host may touch the memory; ``provider`` is the lowest, which took it from a driver.
    """

    provider: Provider
    device: tuple[int, int] | None
    host: bool

    @property
    def cuda(self) -> bool:
        """Whether it is memory of CUDA, on whatever side."""
        return self.device is not None and self.device[0] in CUDA_FAMILY


def place_of(provider: Provider, ptr: int) -> Place:
    """Return where the memory at `ptr` lies, which `provider` or one below it gave out."""
    lowest: Any = provider
    while hasattr(lowest, "upstream"):
        lowest = lowest.upstream
    host = Capability.HOST_ACCESS in lowest.capabilities
    return Place(lowest, _device_of(lowest, ptr, host), host)


def _device_of(provider: Provider, ptr: int, host: bool) -> tuple[int, int] | None:
    ordinal = max(provider.device, 0)
    if provider.name.startswith("cuda"):
        return int(_CUDA_TYPES[provider.memory_type]), ordinal
    if provider.name.startswith("level_zero") and provider.memory_type != "host":
        return int(DeviceType.ONEAPI), ordinal
    if host:
        return CPU
    if provider.name == "opencl":
        # DLPack means a cl_mem; it has no name for an address on an OpenCL device.
        buffers = getattr(provider, "mode", None) == "buffer"
        return (int(DeviceType.OPENCL), ordinal) if buffers else None
    owner = provider.properties(ptr).get("owner")
    ask = getattr(owner, "__dlpack_device__", None)
    return None if ask is None else (int(ask()[0]), int(ask()[1]))
