"""CUDA memory of other processes, mapped here."""

from __future__ import annotations

from umfpy.errors import DriverError, IpcError
from umfpy.providers.cuda.driver import INVALID_CONTEXT, CudaDriver
from umfpy.providers.cuda.ipc import CudaPayload
from umfpy.providers.cuda.structs import filled
from umfpy.providers.host.opened import Opened

#: CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS (cuda.h), the only flag that cuIpcOpenMemHandle knows.
_LAZY_PEER_ACCESS = 0x1


class CudaImports:
    """The open mappings of one provider; its context must be current for every call.

    The driver counts opens of the same memory, and so answers each with the same address.
    """

    def __init__(self, driver: CudaDriver) -> None:
        self._driver = driver
        self._opened = Opened()

    def __len__(self) -> int:
        return len(self._opened)

    def open(self, payload: CudaPayload) -> int:
        """Return the address of another process's allocation here: cuIpcOpenMemHandle.

        Raises
        ------
        IpcError
            The driver does not open it, or it is smaller than the payload says.
        """
        handle = filled(self._driver.bindings.CUipcMemHandle(), payload.handle)
        try:
            opened = self._driver.call("cuIpcOpenMemHandle", handle, _LAZY_PEER_ACCESS)
        except DriverError as error:
            raise IpcError(_explain(error)) from error
        base = int(opened)
        if not self._holds(base, payload.offset + payload.size):
            self._driver.call("cuIpcCloseMemHandle", base)
            raise IpcError(
                f"the handle asks for {payload.size} bytes at {payload.offset}, beyond what was "
                "exported"
            )
        ptr = base + payload.offset
        self._opened.enter(ptr, payload.size, base)
        return ptr

    def close(self, ptr: int, size: int) -> None:
        """Give one open back: cuIpcCloseMemHandle.

        Raises
        ------
        InvalidArgument
            Nothing of `size` bytes is open at `ptr`.
        """
        with self._opened.leaving(ptr, size) as base:
            self._driver.call("cuIpcCloseMemHandle", base)

    def _holds(self, base: int, needed: int) -> bool:
        """Return whether the mapping at `base` has that many bytes: cuMemGetAddressRange."""
        result, *found = self._driver.bindings.cuMemGetAddressRange(base)
        # A driver that does not answer for imported memory leaves nothing to compare with.
        return bool(result) or int(found[1]) >= needed


def _explain(error: DriverError) -> str:
    if error.code == INVALID_CONTEXT:
        return (
            f"{error}; CUDA does not open a handle in the process that made it: use the "
            "allocation itself here"
        )
    return (
        f"{error}; the allocation was freed, its process ended, or the two processes do not see "
        "the same device"
    )
