"""Memory of several chunks for other processes."""

from __future__ import annotations

from collections.abc import Sequence

from umfpy.errors import InvalidArgument, NotSupported
from umfpy.provider import Capability
from umfpy.providers.cuda.vmm_base import CudaDeviceProvider
from umfpy.providers.cuda.vmm_exchange import Exchange
from umfpy.providers.cuda.vmm_ipc import VmmPayload
from umfpy.providers.vmm.chunks import Chunk
from umfpy.providers.vmm.provider import VmmProvider


class SharedChunks(VmmProvider, CudaDeviceProvider):
    """The IPC half of `CudaVmmProvider`, which sets what is declared here."""

    _exchange: Exchange

    def ipc_range(self, ptr: int, size: int, root: tuple[int, int]) -> tuple[int, int]:
        """Return the root, if it is one piece with memory; else the chunks that the range is in.

        Raises InvalidArgument if it begins or ends where there is no memory.
        """
        found = self._pieces.find(root[0])
        if found is not None and found[1].usable and (found[0], found[1].size) == root:
            return root
        return self._backing.around(ptr, size)

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to open a piece, or whole chunks side by side.

        cuMemExportToShareableHandle for each chunk.  They are as many file descriptors of this
        process until the export ends: by `ipc_release`, or when one of them goes.

        Raises
        ------
        InvalidArgument
            Neither a piece of this provider nor whole chunks, or decommitted.
        NotSupported
            The provider is not shareable.
        DriverError, OutOfMemoryError
            The driver refused, or no descriptor is left: see ulimit -n.
        """
        self._check_ipc()
        found = self._pieces.find(ptr)
        if found is None:
            raise InvalidArgument(f"{ptr:#x} is not memory of {self.name}, or was freed already")
        start, piece = found
        if size % self.granularity() and (start, piece.size) != (ptr, size):
            raise InvalidArgument(
                f"{size} bytes at {ptr:#x} are neither a piece nor whole chunks; the piece there "
                f"is of {piece.size} bytes at {start:#x}"
            )
        with self._backing.exporting(ptr, self._length(size)) as chunks:
            return self._exchange.export(self.ipc_scope(), ptr, size, chunks)

    def ipc_release(self, payload: bytes) -> None:
        """End an export: who opens it later is told so.  One that has ended already is fine."""
        self._check_ipc()
        VmmPayload.unpack(payload)
        self._exchange.exports.end(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        """Return a descriptor for each chunk, and one that proves them good.

        None if the export has ended, or has more of them than travel with a handle; then the
        importer fetches them, for which it needs the right to trace this process.
        """
        return self._exchange.exports.descriptors(payload)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported piece."""
        return VmmPayload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's memory, all chunks in one range.

        cuMemImportFromShareableHandle, cuMemMap, cuMemSetAccess.

        Raises
        ------
        IpcError
            The payload is of another device, its memory is gone, or the system does not let this
            process at the descriptors; see `Provider.ipc_open`.
        NotSupported
            This provider is not shareable.
        """
        self._check_ipc()
        parsed = VmmPayload.unpack(payload)
        self._check_device(parsed.uuid)
        return self._exchange.open(parsed, payload, descriptors)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Unmap what `ipc_open` returned, after a wait for the device: cuMemUnmap."""
        self._check_ipc()
        self.synchronize()
        self._exchange.imports.close(ptr, size)
        self._close_if_unused()

    def _lost(self, chunks: Sequence[Chunk]) -> None:
        self._exchange.forget(chunks)

    def _check_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise NotSupported(
                "this memory cannot be opened by other processes: the provider was made with "
                "shareable=False, or the device has no handles that are file descriptors"
            )
