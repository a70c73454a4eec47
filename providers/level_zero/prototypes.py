"""The functions of the Level Zero core API that umfpy calls, and what they take.

Every one answers a ``ze_result_t``.  Source: oneAPI Level Zero Specification, Core API; the
functions that came after version 1.0 say so.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from umfpy.providers.level_zero import structs

_HANDLE = ctypes.c_void_p
_PTR = ctypes.c_void_p
_OUT_HANDLE = ctypes.POINTER(_HANDLE)
_OUT_PTR = ctypes.POINTER(_PTR)
_U32 = ctypes.c_uint32
_U64 = ctypes.c_uint64
_OUT_U32 = ctypes.POINTER(_U32)
_SIZE = ctypes.c_size_t
_OUT_SIZE = ctypes.POINTER(_SIZE)
#: hSignalEvent, numWaitEvents, phWaitEvents.
_EVENTS = [_HANDLE, _U32, _OUT_HANDLE]


def _to(struct: type[ctypes.Structure]) -> Any:
    return ctypes.POINTER(struct)


#: ``ze_result_t``.
RESULT = ctypes.c_uint32

#: name: the types of its arguments.
PROTOTYPES: Mapping[str, list[Any]] = {
    "zeInit": [_U32],
    "zeDriverGet": [_OUT_U32, _OUT_HANDLE],
    "zeDriverGetProperties": [_HANDLE, _to(structs.ze_driver_properties_t)],
    "zeDriverGetIpcProperties": [_HANDLE, _to(structs.ze_driver_ipc_properties_t)],
    "zeDeviceGet": [_HANDLE, _OUT_U32, _OUT_HANDLE],
    "zeDeviceGetProperties": [_HANDLE, _to(structs.ze_device_properties_t)],
    "zeDeviceGetMemoryProperties": [
        _HANDLE,
        _OUT_U32,
        _to(structs.ze_device_memory_properties_t),
    ],
    "zeDeviceGetCommandQueueGroupProperties": [
        _HANDLE,
        _OUT_U32,
        _to(structs.ze_command_queue_group_properties_t),
    ],
    "zeContextCreate": [_HANDLE, _to(structs.ze_context_desc_t), _OUT_HANDLE],
    "zeContextDestroy": [_HANDLE],
    "zeContextMakeMemoryResident": [_HANDLE, _HANDLE, _PTR, _SIZE],
    "zeContextEvictMemory": [_HANDLE, _HANDLE, _PTR, _SIZE],
    "zeMemAllocDevice": [
        _HANDLE,
        _to(structs.ze_device_mem_alloc_desc_t),
        _SIZE,
        _SIZE,
        _HANDLE,
        _OUT_PTR,
    ],
    "zeMemAllocHost": [_HANDLE, _to(structs.ze_host_mem_alloc_desc_t), _SIZE, _SIZE, _OUT_PTR],
    "zeMemAllocShared": [
        _HANDLE,
        _to(structs.ze_device_mem_alloc_desc_t),
        _to(structs.ze_host_mem_alloc_desc_t),
        _SIZE,
        _SIZE,
        _HANDLE,
        _OUT_PTR,
    ],
    "zeMemFree": [_HANDLE, _PTR],
    "zeMemFreeExt": [_HANDLE, _to(structs.ze_memory_free_ext_desc_t), _PTR],
    "zeMemGetAllocProperties": [
        _HANDLE,
        _PTR,
        _to(structs.ze_memory_allocation_properties_t),
        _OUT_HANDLE,
    ],
    "zeMemGetAddressRange": [_HANDLE, _PTR, _OUT_PTR, _OUT_SIZE],
    "zeMemGetIpcHandle": [_HANDLE, _PTR, _to(structs.ze_ipc_mem_handle_t)],
    "zeMemOpenIpcHandle": [_HANDLE, _HANDLE, structs.ze_ipc_mem_handle_t, _U32, _OUT_PTR],
    "zeMemCloseIpcHandle": [_HANDLE, _PTR],
    "zeVirtualMemReserve": [_HANDLE, _PTR, _SIZE, _OUT_PTR],
    "zeVirtualMemFree": [_HANDLE, _PTR, _SIZE],
    "zeVirtualMemQueryPageSize": [_HANDLE, _HANDLE, _SIZE, _OUT_SIZE],
    "zeVirtualMemMap": [_HANDLE, _PTR, _SIZE, _HANDLE, _SIZE, _U32],
    "zeVirtualMemUnmap": [_HANDLE, _PTR, _SIZE],
    "zeVirtualMemSetAccessAttribute": [_HANDLE, _PTR, _SIZE, _U32],
    "zePhysicalMemCreate": [
        _HANDLE,
        _HANDLE,
        _to(structs.ze_physical_mem_desc_t),
        _OUT_HANDLE,
    ],
    "zePhysicalMemDestroy": [_HANDLE, _HANDLE],
    "zeCommandListCreateImmediate": [
        _HANDLE,
        _HANDLE,
        _to(structs.ze_command_queue_desc_t),
        _OUT_HANDLE,
    ],
    "zeCommandListDestroy": [_HANDLE],
    "zeCommandListAppendMemoryFill": [_HANDLE, _PTR, _PTR, _SIZE, _SIZE, *_EVENTS],
    "zeCommandListAppendMemoryCopy": [_HANDLE, _PTR, _PTR, _SIZE, *_EVENTS],
    "zeCommandListAppendBarrier": [_HANDLE, *_EVENTS],
    "zeEventPoolCreate": [
        _HANDLE,
        _to(structs.ze_event_pool_desc_t),
        _U32,
        _OUT_HANDLE,
        _OUT_HANDLE,
    ],
    "zeEventPoolDestroy": [_HANDLE],
    "zeEventCreate": [_HANDLE, _to(structs.ze_event_desc_t), _OUT_HANDLE],
    "zeEventDestroy": [_HANDLE],
    "zeEventHostSynchronize": [_HANDLE, _U64],
    "zeEventHostReset": [_HANDLE],
}

#: Functions that older loaders lack; then umfpy does without.
OPTIONAL: Mapping[str, list[Any]] = {
    # Both came with version 1.6.
    "zeMemPutIpcHandle": [_HANDLE, structs.ze_ipc_mem_handle_t],
    "zeDriverGetLastErrorDescription": [_HANDLE, ctypes.POINTER(ctypes.c_char_p)],
}
