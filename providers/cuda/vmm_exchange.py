"""Chunks as file descriptors, out of this process and into it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from functools import partial

from umfpy.errors import DriverError, InvalidArgument
from umfpy.providers.cuda.driver import INVALID_VALUE, CudaDriver
from umfpy.providers.cuda.vmm_driver import access_of
from umfpy.providers.cuda.vmm_imports import VmmImports
from umfpy.providers.cuda.vmm_ipc import VmmPayload
from umfpy.providers.cuda.vmm_sharing import Exporter, Exports, descriptors_of
from umfpy.providers.host.later import Later
from umfpy.providers.host.system import System
from umfpy.providers.vmm.chunks import Chunk


class Exchange:
    """What one provider has exported, and what it has open from other processes.

    Parameters
    ----------
    devices
        Ordinals of those that get access to what is opened.
    """

    def __init__(self, driver: CudaDriver, later: Later, devices: Sequence[int]) -> None:
        self._driver = driver
        self._later = later
        self._system = System("cuda_vmm")
        self.exports = Exports("cuda_vmm")
        self.imports = VmmImports(driver, later, access_of(driver, devices, "READWRITE"))

    def export(self, uuid: str, ptr: int, size: int, chunks: Sequence[Chunk]) -> bytes:
        """Return a payload for chunks that are not taken elsewhere meanwhile.

        cuMemExportToShareableHandle for each.  The descriptors are this process's until the
        export ends.

        Raises
        ------
        InvalidArgument
            Another thread has dropped a chunk meanwhile.
        """
        with contextlib.ExitStack() as undo:
            fds: list[int] = []
            for chunk in chunks:
                fds.append(self._descriptor(chunk))
                undo.callback(os.close, fds[-1])
            sizes = [chunk.size for chunk in chunks]

            def make(exporter: Exporter) -> bytes:
                pairs = tuple(zip(fds, sizes, strict=True))
                return VmmPayload(uuid, exporter, size, pairs).pack()

            payload = self.exports.enter(ptr, size, fds, make)
            undo.pop_all()
        if not all(chunk.handle for chunk in chunks):
            self.exports.end(payload)  # nobody else does, if it was entered too late
            raise _gone(ptr, size)
        return payload

    def forget(self, chunks: Sequence[Chunk]) -> None:
        """End the exports of chunks that have lost their addresses."""
        if any(chunk.shared for chunk in chunks):
            self.exports.forget(chunks[0].ptr, chunks[-1].end - chunks[0].ptr)

    def open(self, payload: VmmPayload, data: bytes, descriptors: Sequence[int]) -> int:
        """Map what another process exported; `data` is the payload packed."""
        wanted = payload.exporter, payload.fds, data, descriptors
        with descriptors_of(self._system, *wanted) as fds:
            return self.imports.open(payload, fds)

    def _descriptor(self, chunk: Chunk) -> int:
        """Return a new descriptor for the memory of a chunk, which no other thread waits for.

        It may be dropped at any moment, and its handle be another memory's then: so the driver
        says what is behind the address, and keeps it meanwhile (cuMemRetainAllocationHandle).
        """
        kind = self._driver.bindings.CUmemAllocationHandleType
        posix = kind.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        try:
            handle = self._driver.call("cuMemRetainAllocationHandle", chunk.ptr)
        except DriverError as error:
            if error.code == INVALID_VALUE:  # nothing is there any more
                raise _gone(chunk.ptr, chunk.size) from error
            raise
        try:
            if int(handle) != chunk.handle:
                raise _gone(chunk.ptr, chunk.size)
            return int(self._driver.call("cuMemExportToShareableHandle", handle, posix, 0))
        finally:
            self._later.attempt(partial(self._driver.call, "cuMemRelease", handle))


def _gone(ptr: int, size: int) -> InvalidArgument:
    return InvalidArgument(f"the {size} bytes at {ptr:#x} were freed while they were exported")
