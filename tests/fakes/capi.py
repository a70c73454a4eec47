"""A pool's C functions as a library would call them: by address, the GIL let go."""

from __future__ import annotations

import ctypes
from ctypes import c_int, c_size_t, c_void_p

from umfpy.core.pool import BasePool

_PORT_MALLOC = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_int)
_PORT_FREE = ctypes.CFUNCTYPE(None, c_void_p, c_void_p, c_int)
_DEVICE_MALLOC = ctypes.CFUNCTYPE(c_void_p, c_size_t, c_int, c_void_p)
_DEVICE_FREE = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_int, c_void_p)
_DEVICE_RECORD = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)


class PortCalls:
    """CuPy's shape: the pool is told by an argument."""

    def __init__(self, pool: BasePool) -> None:
        self.interface = pool.c_interface()
        self._malloc = _PORT_MALLOC(self.interface.malloc)
        self._free = _PORT_FREE(self.interface.free)
        self._param = self.interface.param

    @property
    def refused(self) -> int:
        return self.interface.refused

    def malloc(self, size: int) -> int | None:
        return self._malloc(self._param, size, 0)

    def free(self, ptr: int | None) -> None:
        self._free(self._param, ptr, 0)


class DeviceCalls:
    """PyTorch's shape: the pool is the one that serves the device."""

    def __init__(self, pool: BasePool, device: int) -> None:
        self.interface = pool.c_interface()
        self.interface.serve(device)
        self._device = device
        self._malloc = _DEVICE_MALLOC(self.interface.device_malloc)
        self._free = _DEVICE_FREE(self.interface.device_free)
        self._record = _DEVICE_RECORD(self.interface.device_record)

    @property
    def refused(self) -> int:
        return self.interface.refused

    def malloc(self, size: int, *, stream: int, device: int | None = None) -> int | None:
        return self._malloc(size, self._device if device is None else device, stream)

    def free(self, ptr: int | None, size: int, *, stream: int, device: int | None = None) -> None:
        self._free(ptr, size, self._device if device is None else device, stream)

    def record(self, ptr: int, *, stream: int) -> None:
        self._record(ptr, stream)


def functions_in(capsule: object) -> list[int | None]:
    """The addresses that a pool's capsule holds, in their order."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return list((c_void_p * 6).from_address(get(capsule, b"umfpy.port.1")))
