"""The kinds of memory that Level Zero allocates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from umfpy.arguments import check_choice
from umfpy.provider import Capability
from umfpy.providers.level_zero.constants import Flag
from umfpy.providers.level_zero.context import Context
from umfpy.providers.level_zero.devices import Device
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import (
    Described,
    ze_device_mem_alloc_desc_t,
    ze_host_mem_alloc_desc_t,
    ze_relaxed_allocation_limits_exp_desc_t,
)

_EVERY = Capability.ZERO | Capability.COPY | Capability.STREAMS

#: Handles are of device memory (Core API, zeMemGetIpcHandle).
KINDS: Mapping[str, Capability] = {
    "device": _EVERY | Capability.IPC,
    "host": _EVERY | Capability.HOST_ACCESS,
    "shared": _EVERY | Capability.HOST_ACCESS,
}


def check_kind(memory_type: str) -> Capability:
    """Return what memory of that type can do; raise InvalidArgument if there is none."""
    return KINDS[check_choice(memory_type, KINDS, "memory_type")]


@dataclass(frozen=True)
class Source:
    """Where allocations come from: a context, a device, a type, and of the device which memory."""

    driver: LevelZeroDriver
    context: Context
    device: Device
    memory_type: str
    ordinal: int

    def take(self, size: int, alignment: int) -> int:
        """Return the address of `size` fresh bytes: zeMemAllocDevice, ...Host or ...Shared.

        Above the device's maxMemAllocSize with ze_relaxed_allocation_limits_exp_desc_t.
        """
        relaxed = size > self.device.max_alloc_bytes
        on_device = ze_device_mem_alloc_desc_t(ordinal=self.ordinal)
        on_host = ze_host_mem_alloc_desc_t()
        if relaxed:
            _relax(on_host if self.memory_type == "host" else on_device)
        context, request = self.context.handle, (size, alignment)
        if self.memory_type == "host":
            return self.driver.make("zeMemAllocHost", context, on_host, *request)
        where = self.device.handle
        if self.memory_type == "device":
            return self.driver.make("zeMemAllocDevice", context, on_device, *request, where)
        return self.driver.make("zeMemAllocShared", context, on_device, on_host, *request, where)


def _relax(description: Described) -> None:
    limits = ze_relaxed_allocation_limits_exp_desc_t(
        flags=Flag.ZE_RELAXED_ALLOCATION_LIMITS_EXP_FLAG_MAX_SIZE
    )
    description.chain(limits)
