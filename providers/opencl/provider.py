"""Memory of OpenCL devices."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from umfpy.errors import InvalidArgument, NotSupported, OutOfMemoryError
from umfpy.provider import Capability, Location, NativeError, Provider
from umfpy.providers.host.arguments import check_request
from umfpy.providers.host.buffers import address_of
from umfpy.providers.host.pieces import Piece, Pieces
from umfpy.providers.opencl.binding import OpenCL
from umfpy.providers.opencl.buffers import BufferSource
from umfpy.providers.opencl.devices import describe, find_device
from umfpy.providers.opencl.offers import Offer, choose
from umfpy.providers.opencl.queues import Queues
from umfpy.providers.opencl.source import LARGEST_TYPE, Source
from umfpy.providers.opencl.svm import SvmSource
from umfpy.providers.opencl.usm import UsmSource
from umfpy.units import format_size

_NO_IPC = (
    "OpenCL has no calls that share memory with another process: its extensions import memory of "
    "other interfaces, and export none; to share, use CudaProvider, LevelZeroProvider or "
    "HostProvider(shared=True)"
)


class OpenCLProvider(Provider):
    """Memory of an OpenCL device, through pyopencl.

    Parameters
    ----------
    device
        The index among the devices of all platforms; a part of one device's name or of its
        platform's; a ``pyopencl.Device``; or None for the first GPU, else the first device.
    mode
        ``"usm"``: unified shared memory (cl_intel_unified_shared_memory).  ``"svm"``: shared
        virtual memory.  ``"buffer"``: buffers (``cl_mem``), under addresses that umfpy makes up,
        which nothing can follow.  ``"auto"``: the first of them that the device has.
    context
        A ``pyopencl.Context`` to allocate in; if not given, a new one of the device alone.
    memory_type
        ``"device"``; ``"shared"``, which the host may touch too, at any time; ``"host"``, which
        the device reaches.  None for the first that the mode has.  SVM is ``"shared"`` where it
        is fine-grained, and ``"device"`` where it is coarse-grained and so has to be mapped.

    Raises
    ------
    DriverUnavailable
        pyopencl or an OpenCL platform is missing; the message says what to install.
    InvalidArgument
        There is no such device, or it has no such memory; the message says what there is.

    Notes
    -----
    A `stream` is what `stream` returns for a ``pyopencl.CommandQueue``.  Without one, or with 0,
    work goes to `queue` and is done when the call returns.  Calls may come from any thread.
    Memory goes when it is freed, or with the provider.
    """

    name = "opencl"

    def __init__(
        self,
        device: Any = None,
        *,
        mode: str = "auto",
        context: Any = None,
        memory_type: str | None = None,
    ) -> None:
        self._driver = driver = OpenCL()
        self._ordinal, self._device = find_device(driver, device, context)
        offer = choose(driver, self._device, mode, memory_type)
        self._context = context or driver.call(driver.cl.Context, [self._device])
        self._queues = Queues(driver, self._context, self._device)
        self.mode = offer.mode
        self.memory_type = offer.memory_type
        self.device = -1 if offer.memory_type == "host" else self._ordinal
        # CL_DEVICE_MEM_BASE_ADDR_ALIGN is in bits.
        self.granule = max(self._device.mem_base_addr_align // 8, LARGEST_TYPE)
        self._source = self._make_source(offer)
        own = Capability.ZERO | Capability.COPY | Capability.STREAMS
        self.capabilities = own | self._source.capabilities
        self._pieces = Pieces()
        self._lock = threading.Lock()
        self._held = 0
        self._closed = False

    @property
    def context(self) -> Any:
        """The ``pyopencl.Context`` that the memory belongs to."""
        return self._context

    @property
    def queue(self) -> Any:
        """The ``pyopencl.CommandQueue``, in order, that stands for the default stream."""
        return self._queues.default

    def stream(self, queue: Any) -> int:
        """Return a ``pyopencl.CommandQueue`` as the `stream` of this provider and its pools.

        The queue is kept alive as long as the provider, and waited for by `synchronize`.

        Raises
        ------
        InvalidArgument
            It is of another context, or runs commands out of order.
        """
        return self._queues.add(queue)

    def buffer(self, ptr: int, size: int) -> Any:
        """Return what pyopencl takes for the memory, as an argument of kernels and elsewhere.

        A ``pyopencl.Buffer`` in mode ``"buffer"``, a sub-buffer that costs no memory; else a
        ``pyopencl.SVM``.  It does not keep the allocation: see
        `umfpy.integrations.pyopencl.buffer`.

        Raises
        ------
        InvalidArgument
            There are no bytes; or in mode ``"buffer"``: they are not in one allocation of this
            provider.
        AlignmentError
            In mode ``"buffer"``: `ptr` is no multiple of `granule` into the allocation.
        """
        if size < 1:
            raise InvalidArgument(f"OpenCL has no memory of {size} bytes to give to a kernel")
        return self._source.argument(ptr, size)

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the address of `size` bytes.

        clDeviceMemAllocINTEL and its kin, clSVMAlloc or clCreateBuffer.  `alignment` may be any
        power of two.  Drivers know alignments up to 128 bytes, so that for more they are asked
        for ``size + alignment``; in mode ``"buffer"`` more than `granule` is a matter of umfpy's
        own addresses alone.

        Raises
        ------
        InvalidArgument
            `size` is below 1, or the provider is closed.
        AlignmentError
            `alignment` is not a power of two, or beyond 2^46.
        OutOfMemoryError
            The message says how large an allocation of the device may be.
        DriverError
            Whatever else the driver answered.
        """
        size, alignment = check_request(size, alignment, self.name)
        if self._closed:
            raise InvalidArgument("this OpenCL provider is closed; make a new one")
        with self._pieces.coming():
            try:
                origin, ptr = self._source.take(size, max(alignment, self.granule))
            except OutOfMemoryError as error:
                raise self._out_of_memory(size, error) from error
            self._pieces.add(ptr, Piece(size, origin))
        self._count(size)
        return ptr

    def free(self, ptr: int, size: int) -> None:
        """Give an allocation back, once no known queue uses it any more.

        clMemBlockingFreeINTEL, clSVMFree or clReleaseMemObject.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`: a double free, a foreign or interior
            pointer.
        DriverError
            The driver refused; the allocation is still there.
        """
        with self._pieces.released(ptr, size) as piece:
            self._source.give(piece.origin)
        self._count(-size)

    def granularity(self, size: int = 0) -> int:
        """Return CL_DEVICE_MEM_BASE_ADDR_ALIGN in bytes, the only unit that OpenCL names."""
        return self.granule

    def zero(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Write zeros, ordered on `stream`; on the default stream, done at return.

        clEnqueueMemFillINTEL, clEnqueueSVMMemFill or clEnqueueFillBuffer.
        """
        if size < 0:
            raise InvalidArgument(f"a size cannot be negative: {size}")
        queue = self._queues.find(stream)
        if size:
            self._source.zero(queue, ptr, size, wait=not stream)

    def copy(self, dst: Location, src: Location, size: int, stream: int | None = None) -> None:
        """Copy between addresses and host buffers, ordered on `stream`.

        A copy from or to a host buffer is done at return, whatever the stream; one between
        addresses on the default stream is, too.  The two ranges must not overlap.

        Raises
        ------
        InvalidArgument
            Both sides are host buffers, one is too small or read-only; in mode ``"buffer"`` also
            an address that is not this provider's.
        """
        if size < 0:
            raise InvalidArgument(f"a size cannot be negative: {size}")
        queue = self._queues.find(stream)
        if not isinstance(dst, int) and not isinstance(src, int):
            raise InvalidArgument(
                "both sides of the copy are host buffers; one has to be an address"
            )
        if not size:
            return
        with address_of(dst, size, writable=True) as to, address_of(src, size, writable=False) as f:
            if not isinstance(src, int):
                self._source.write(queue, to, f, size)
            elif not isinstance(dst, int):
                self._source.read(queue, to, f, size)
            else:
                self._source.copy(queue, to, f, size, wait=not stream)

    def synchronize(self) -> None:
        """Wait for `queue` and for all queues made known by `stream`: clFinish."""
        self._queues.finish()

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Raise NotSupported, with the reason."""
        raise NotSupported(_NO_IPC)

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Raise NotSupported, with the reason."""
        raise NotSupported(_NO_IPC)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Raise NotSupported, with the reason."""
        raise NotSupported(_NO_IPC)

    @classmethod
    def for_ipc(cls, scope: str) -> Provider:
        """Raise NotSupported, with the reason."""
        raise NotSupported(_NO_IPC)

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return base, size, kind, context and device of an allocation; {} for foreign addresses.

        ``context`` is a ``pyopencl.Context`` and ``opencl_device`` a ``pyopencl.Device``.
        """
        found = self._pieces.find(ptr)
        if found is None:
            return {}
        base, piece = found
        return {
            "base": base,
            "size": piece.size,
            "memory_type": self.memory_type,
            "mode": self.mode,
            "context": self._context,
            "opencl_device": self._device,
        }

    def memory_info(self) -> tuple[int, int]:
        """Return (free, total) bytes of the device: CL_DEVICE_GLOBAL_MEM_SIZE.

        OpenCL does not say what is free; it is taken to be all that this provider does not hold.
        """
        total = int(self._device.global_mem_size)
        return max(total - self._held, 0), total

    def native_error(self) -> NativeError | None:
        """Return this thread's last failure, in the driver's words."""
        return self._driver.last_error()

    def live_count(self) -> int:
        """Return how many allocations there are: 0 when everything was freed."""
        return len(self._pieces)

    def close(self) -> None:
        """Refuse further allocations; what is there stays valid until it is freed."""
        self._closed = True

    def _make_source(self, offer: Offer) -> Source:
        if offer.mode == "usm":
            kind = offer.memory_type
            return UsmSource(self._driver, self._context, self._queues, self._device, kind)
        if offer.mode == "svm":
            fine = offer.memory_type == "shared"
            return SvmSource(self._driver, self._context, self._queues, fine=fine)
        return BufferSource(self._driver, self._context, self._queues, self.granule)

    def _count(self, size: int) -> None:
        with self._lock:
            self._held += size

    def _out_of_memory(self, size: int, error: OutOfMemoryError) -> OutOfMemoryError:
        largest, total = self._device.max_mem_alloc_size, self._device.global_mem_size
        return OutOfMemoryError(
            f"no {self.mode} memory for {size} bytes ({format_size(size)}): {error}; "
            f"{describe(self._device)} has {total} bytes, at most {largest} in one allocation, and "
            f"this provider holds {self._held}",
            requested=size,
            used=self._held,
            provider=self.name,
        )

    def __repr__(self) -> str:
        kind = Offer(self.mode, self.memory_type)
        return f"OpenCLProvider({self._ordinal}: {describe(self._device)}, {kind})"
