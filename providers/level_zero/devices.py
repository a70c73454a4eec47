"""Devices, and which one is meant."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from umfpy.arguments import as_number
from umfpy.errors import DriverUnavailable, InvalidArgument
from umfpy.providers.level_zero.constants import Flag
from umfpy.providers.level_zero.driver import LevelZeroDriver
from umfpy.providers.level_zero.structs import (
    ze_command_queue_group_properties_t,
    ze_device_memory_properties_t,
    ze_device_properties_t,
)


@dataclass(frozen=True)
class Device:
    """A device: ``index`` counts through all drivers, in the order in which the loader has them.

    ``uuid`` is hexadecimal, and the same in every process.  ``max_alloc_bytes`` is the largest
    allocation without relaxed limits.
    """

    index: int
    driver: int
    handle: int
    name: str
    uuid: str
    max_alloc_bytes: int

    def __str__(self) -> str:
        return f"Level Zero device {self.index} ({self.name})"


def all_devices(driver: LevelZeroDriver) -> list[Device]:
    """Return every device of every driver: zeDriverGet, zeDeviceGet, zeDeviceGetProperties.

    Raises
    ------
    DriverUnavailable
        There is none; the message says whether there is a driver.
    """
    drivers = driver.handles("zeDriverGet")
    pairs = [(owner, each) for owner in drivers for each in driver.handles("zeDeviceGet", owner)]
    devices = [_describe(driver, *pair) for pair in pairs]
    real = [device for device in devices if device is not None]
    if not real:
        raise DriverUnavailable(
            f"Level Zero has {len(drivers)} driver{'' if len(drivers) == 1 else 's'} but no "
            "device" + (" that says anything of itself (a null driver?)" if devices else "") + "; "
            "look at ZE_AFFINITY_MASK and at the permissions of /dev/dri, or emulate one with "
            'umfpy.emulate("level_zero")'
        )
    return [
        Device(i, d.driver, d.handle, d.name, d.uuid, d.max_alloc_bytes) for i, d in enumerate(real)
    ]


def _describe(driver: LevelZeroDriver, owner: int, handle: int) -> Device | None:
    """Return a device without its index; None if the driver writes nothing of it."""
    found = ze_device_properties_t()
    driver.call("zeDeviceGetProperties", handle, ctypes.byref(found))
    if not found.type or not found.maxMemAllocSize:
        return None
    name = found.name.decode(errors="replace").strip()
    return Device(-1, owner, handle, name, bytes(found.uuid).hex(), found.maxMemAllocSize)


def find_device(devices: list[Device], wanted: int | str) -> Device:
    """Return the device with that index, UUID (hexadecimal, dashes or not) or name.

    Raises
    ------
    InvalidArgument
        There is none, or several have that name; the message lists what there is.
    """
    if isinstance(wanted, str):
        uuid = wanted.replace("-", "").lower()
        found = [d for d in devices if wanted == d.name] or [d for d in devices if uuid == d.uuid]
    else:
        index = as_number(wanted)
        found = [d for d in devices if d.index == index]
    if len(found) == 1:
        return found[0]
    there = "; ".join(f"{d.index}: {d.name}, {d.uuid}" for d in devices)
    trouble = f"{len(found)} Level Zero devices are" if found else "no Level Zero device is"
    raise InvalidArgument(
        f"{trouble} {wanted!r}; there are {there}: give an index as a number, or a UUID or a name "
        "as text"
    )


def memory_sizes(driver: LevelZeroDriver, device: Device) -> list[int]:
    """Return the bytes of each local memory, by ordinal: zeDeviceGetMemoryProperties."""
    count = ctypes.c_uint32()
    driver.call("zeDeviceGetMemoryProperties", device.handle, ctypes.byref(count), None)
    found = (ze_device_memory_properties_t * count.value)()
    for each in found:
        each.stype = ze_device_memory_properties_t.STYPE
    if count.value:
        driver.call("zeDeviceGetMemoryProperties", device.handle, ctypes.byref(count), found)
    return [each.totalSize for each in found]


def queue_group(driver: LevelZeroDriver, device: Device) -> int:
    """Return the ordinal of a group of queues that can fill and copy.

    zeDeviceGetCommandQueueGroupProperties: one for computing, which can copy as well, else one
    that only copies.

    Raises
    ------
    DriverUnavailable
        The device has neither.
    """
    name = "zeDeviceGetCommandQueueGroupProperties"
    count = ctypes.c_uint32()
    driver.call(name, device.handle, ctypes.byref(count), None)
    groups = (ze_command_queue_group_properties_t * count.value)()
    for group in groups:
        group.stype = ze_command_queue_group_properties_t.STYPE
    if count.value:
        driver.call(name, device.handle, ctypes.byref(count), groups)
    for wanted in (
        Flag.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COMPUTE,
        Flag.ZE_COMMAND_QUEUE_GROUP_PROPERTY_FLAG_COPY,
    ):
        for ordinal, group in enumerate(groups):
            if group.flags & wanted and group.numQueues:
                return ordinal
    raise DriverUnavailable(f"{device} has no queue that can fill or copy memory")
