"""The structures of ``ze_api.h`` that umfpy uses, field by field as the header has them.

Each begins with ``stype``, set here, and ``pNext``, the next of a chain of extensions.  A test
compares sizes and offsets with the header, where that is installed.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from umfpy.providers.level_zero.constants import (
    ZE_MAX_DEVICE_NAME,
    ZE_MAX_DEVICE_UUID_SIZE,
    ZE_MAX_DRIVER_UUID_SIZE,
    ZE_MAX_IPC_HANDLE_SIZE,
    StructureType,
)

_U32 = ctypes.c_uint32
_U64 = ctypes.c_uint64
_SIZE = ctypes.c_size_t
_HEAD = (("stype", _U32), ("pNext", ctypes.c_void_p))


class Described(ctypes.Structure):
    """A structure that says what it is."""

    STYPE: ClassVar[StructureType]

    def __init__(self, **fields: Any) -> None:
        super().__init__(stype=self.STYPE, **fields)

    def chain(self, following: Described) -> None:
        """Put another structure behind this one, which keeps it alive."""
        self.pNext = ctypes.addressof(following)
        self._following = following


class ze_driver_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DRIVER_PROPERTIES
    _fields_ = (*_HEAD, ("uuid", ctypes.c_uint8 * ZE_MAX_DRIVER_UUID_SIZE), ("driverVersion", _U32))


class ze_driver_ipc_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DRIVER_IPC_PROPERTIES
    _fields_ = (*_HEAD, ("flags", _U32))


class ze_driver_memory_free_ext_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DRIVER_MEMORY_FREE_EXT_PROPERTIES
    _fields_ = (*_HEAD, ("freePolicies", _U32))


class ze_device_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DEVICE_PROPERTIES
    _fields_ = (
        *_HEAD,
        ("type", _U32),
        ("vendorId", _U32),
        ("deviceId", _U32),
        ("flags", _U32),
        ("subdeviceId", _U32),
        ("coreClockRate", _U32),
        ("maxMemAllocSize", _U64),
        ("maxHardwareContexts", _U32),
        ("maxCommandQueuePriority", _U32),
        ("numThreadsPerEU", _U32),
        ("physicalEUSimdWidth", _U32),
        ("numEUsPerSubslice", _U32),
        ("numSubslicesPerSlice", _U32),
        ("numSlices", _U32),
        ("timerResolution", _U64),
        ("timestampValidBits", _U32),
        ("kernelTimestampValidBits", _U32),
        ("uuid", ctypes.c_uint8 * ZE_MAX_DEVICE_UUID_SIZE),
        ("name", ctypes.c_char * ZE_MAX_DEVICE_NAME),
    )


class ze_device_memory_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DEVICE_MEMORY_PROPERTIES
    _fields_ = (
        *_HEAD,
        ("flags", _U32),
        ("maxClockRate", _U32),
        ("maxBusWidth", _U32),
        ("totalSize", _U64),
        ("name", ctypes.c_char * ZE_MAX_DEVICE_NAME),
    )


class ze_command_queue_group_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_GROUP_PROPERTIES
    _fields_ = (*_HEAD, ("flags", _U32), ("maxMemoryFillPatternSize", _SIZE), ("numQueues", _U32))


class ze_context_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_CONTEXT_DESC
    _fields_ = (*_HEAD, ("flags", _U32))


class ze_command_queue_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_COMMAND_QUEUE_DESC
    _fields_ = (
        *_HEAD,
        ("ordinal", _U32),
        ("index", _U32),
        ("flags", _U32),
        ("mode", _U32),
        ("priority", _U32),
    )


class ze_event_pool_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_EVENT_POOL_DESC
    _fields_ = (*_HEAD, ("flags", _U32), ("count", _U32))


class ze_event_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_EVENT_DESC
    _fields_ = (*_HEAD, ("index", _U32), ("signal", _U32), ("wait", _U32))


class ze_device_mem_alloc_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_DEVICE_MEM_ALLOC_DESC
    _fields_ = (*_HEAD, ("flags", _U32), ("ordinal", _U32))


class ze_host_mem_alloc_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_HOST_MEM_ALLOC_DESC
    _fields_ = (*_HEAD, ("flags", _U32))


class ze_relaxed_allocation_limits_exp_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_RELAXED_ALLOCATION_LIMITS_EXP_DESC
    _fields_ = (*_HEAD, ("flags", _U32))


class ze_memory_free_ext_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_MEMORY_FREE_EXT_DESC
    _fields_ = (*_HEAD, ("freePolicy", _U32))


class ze_memory_allocation_properties_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_MEMORY_ALLOCATION_PROPERTIES
    _fields_ = (*_HEAD, ("type", _U32), ("id", _U64), ("pageSize", _U64))


class ze_physical_mem_desc_t(Described):
    STYPE = StructureType.ZE_STRUCTURE_TYPE_PHYSICAL_MEM_DESC
    _fields_ = (*_HEAD, ("flags", _U32), ("size", _SIZE))


class ze_ipc_mem_handle_t(ctypes.Structure):
    """Opaque but for its first four bytes, which are a file descriptor of the exporter's."""

    _fields_ = (("data", ctypes.c_char * ZE_MAX_IPC_HANDLE_SIZE),)
