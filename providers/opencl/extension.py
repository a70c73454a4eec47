"""Intel's extension for unified shared memory, which pyopencl does not bind.

Source: OpenCL Extension cl_intel_unified_shared_memory, version 1.0, and cl_ext.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from umfpy.errors import DriverUnavailable
from umfpy.providers.opencl.binding import OpenCL

EXTENSION = "cl_intel_unified_shared_memory"

#: CL_DEVICE_..._MEM_CAPABILITIES_INTEL, by umfpy's name for the type of memory.
_CAPABILITIES = {"host": 0x4190, "device": 0x4191, "shared": 0x4192}
#: CL_UNIFIED_SHARED_MEMORY_ACCESS_INTEL
_ACCESS = 1

_HANDLE = ctypes.c_void_p
_SIZE = ctypes.c_size_t
_INT = ctypes.c_int32
_UINT = ctypes.c_uint32
_ERROR = ctypes.POINTER(ctypes.c_int32)

#: Every function: its result, then its arguments.
_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "clHostMemAllocINTEL": (_HANDLE, _HANDLE, _HANDLE, _SIZE, _UINT, _ERROR),
    "clDeviceMemAllocINTEL": (_HANDLE, _HANDLE, _HANDLE, _HANDLE, _SIZE, _UINT, _ERROR),
    "clSharedMemAllocINTEL": (_HANDLE, _HANDLE, _HANDLE, _HANDLE, _SIZE, _UINT, _ERROR),
    "clMemBlockingFreeINTEL": (_INT, _HANDLE, _HANDLE),
    "clEnqueueMemFillINTEL": (
        *(_INT, _HANDLE, _HANDLE, _HANDLE, _SIZE, _SIZE),
        *(_UINT, _HANDLE, _HANDLE),
    ),
    "clEnqueueMemcpyINTEL": (
        *(_INT, _HANDLE, _UINT, _HANDLE, _HANDLE, _SIZE),
        *(_UINT, _HANDLE, _HANDLE),
    ),
}


@cache
def _loader(path: str) -> Any:
    """Return the OpenCL loader that pyopencl's compiled module at `path` is linked with.

    Looking a symbol up in a library looks through what it is linked with, too (dlsym(3)).
    """
    library = ctypes.CDLL(path)
    library.clGetExtensionFunctionAddressForPlatform.argtypes = [_HANDLE, ctypes.c_char_p]
    library.clGetExtensionFunctionAddressForPlatform.restype = _HANDLE
    library.clGetDeviceInfo.argtypes = [_HANDLE, _UINT, _SIZE, _HANDLE, _HANDLE]
    return library


def usm_types(driver: OpenCL, device: Any) -> set[str]:
    """Return which types of unified shared memory the device can use: clGetDeviceInfo."""
    query = _loader(driver.cl._cl.__file__).clGetDeviceInfo
    found = set()
    for name, parameter in _CAPABILITIES.items():
        value = ctypes.c_uint64()
        code = query(device.int_ptr, parameter, 8, ctypes.byref(value), None)
        if not code and value.value & _ACCESS:
            found.add(name)
    return found


class UsmFunctions:
    """The functions of the extension, as one platform has them."""

    def __init__(self, driver: OpenCL, platform: Any) -> None:
        self._driver = driver
        find = _loader(driver.cl._cl.__file__).clGetExtensionFunctionAddressForPlatform
        self._functions: dict[str, Callable[..., Any]] = {}
        for name, prototype in _PROTOTYPES.items():
            address = find(platform.int_ptr, name.encode())
            if not address:
                raise DriverUnavailable(
                    f"{platform.name} announces {EXTENSION} but has no {name}; use "
                    'OpenCLProvider(mode="svm") or mode="buffer"'
                )
            self._functions[name] = ctypes.CFUNCTYPE(*prototype)(address)

    def allocate(self, name: str, *args: int | None) -> int:
        """Return the address that an allocating function gives."""
        code = ctypes.c_int32()
        ptr = self._driver.call(self._functions[name], *args, ctypes.byref(code))
        if code.value or not ptr:
            raise self._driver.failed(name, code.value, "")
        return int(ptr)

    def call(self, name: str, *args: Any) -> None:
        """Call a function that returns an error code."""
        code = self._driver.call(self._functions[name], *args)
        if code:
            raise self._driver.failed(name, code, "")
