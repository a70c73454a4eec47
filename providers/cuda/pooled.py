"""Device memory out of a pool of the driver's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from numbers import Number
from typing import Any

from umfpy.arguments import as_number, check_number
from umfpy.errors import InvalidArgument, NotSupported
from umfpy.provider import Capability
from umfpy.providers.cuda.context import PrimaryContext
from umfpy.providers.cuda.driver import CudaDriver
from umfpy.providers.cuda.native import NativeProvider
from umfpy.providers.cuda.pooled_driver import DriverPool, DriverPoolStats
from umfpy.providers.cuda.pooled_imports import PooledImports
from umfpy.providers.cuda.pooled_ipc import POINTER_SIZE, PooledPayload
from umfpy.providers.cuda.renewed import Renewed
from umfpy.providers.cuda.structs import struct_bytes
from umfpy.providers.cuda.vmm_sharing import Exporter, Exports, descriptors_of
from umfpy.providers.cuda.vmm_support import (
    POSIX_DESCRIPTOR,
    check_ability,
    device_has,
    granularity,
    physical_properties,
)
from umfpy.providers.host.later import Later
from umfpy.providers.host.system import System
from umfpy.units import parse_size

#: CU_STREAM_NON_BLOCKING (cuda.h): the stream does not wait for the legacy default stream.
_NON_BLOCKING = 1

#: A release threshold is a ``cuuint64_t``: all of its bits mean that everything is kept.
_LARGEST = (1 << 64) - 1


class CudaAsyncProvider(NativeProvider):
    """Device memory out of a stream-ordered pool of the driver's: cuMemAllocFromPoolAsync.

    Parameters
    ----------
    device
        The device's ordinal, as CUDA_VISIBLE_DEVICES orders them.
    release_threshold
        Bytes, as number or text, that the pool keeps while they are unused, when something is
        waited for.  None leaves it as it is: 0 for a new pool, which then keeps nothing.
    pool
        None for a pool of this provider's own, which it destroys in the end; ``"default"`` for the
        device's default pool; or a CUmemoryPool of the caller's, as number or object.

    Raises
    ------
    DriverUnavailable
        The binding, the driver library or a device is missing; the message says what to install.
    NotSupported
        The device has no memory pools.
    InvalidArgument
        There is no such device, or `pool` is another text.

    Notes
    -----
    *Order.*  `alloc` takes memory on a stream of the provider's own and waits for that stream
    alone, so that the memory is ready for every stream.  `free` waits for all work of the device's
    primary context first, as cuMemFree does.  Who passes a stream waits for nothing: the memory
    is ready, or given up, in that stream's order.

    Only memory of a pool of its own can be opened by other processes.
    """

    name = "cuda_async"
    driver = "cuda"
    capabilities = Capability.ZERO | Capability.COPY | Capability.STREAMS | Capability.IPC

    def __init__(
        self,
        device: int = 0,
        *,
        release_threshold: int | str | None = None,
        pool: Any = None,
    ) -> None:
        threshold = None if release_threshold is None else parse_size(release_threshold)
        if threshold is not None:
            check_number(threshold, "release_threshold", most=_LARGEST)
        super().__init__(device)
        driver, later = self._driver, Later()
        self._later = later
        prop = physical_properties(driver, self.device, shareable=False, rdma=False)
        self._unit = granularity(driver, prop, "MINIMUM")
        self._recommended = max(self._unit, granularity(driver, prop, "RECOMMENDED"))
        self._shareable = pool is None and device_has(
            driver, self._handle, "MEMPOOL_SUPPORTED_HANDLE_TYPES", POSIX_DESCRIPTOR
        )
        if not self._shareable:
            self.capabilities = type(self).capabilities & ~Capability.IPC
        self._pool = self._find_pool(pool)
        self._closing.before(self._pool.close)
        if threshold is not None:
            self._pool.set_release_threshold(threshold)
        self._own_stream = Renewed(
            partial(_make_stream, driver, self._context), partial(driver.call, "cuStreamDestroy")
        )
        _ = self.stream
        self._system = System(self.name)
        self._exports = Exports(self.name)
        self._imports = PooledImports(driver, later)
        self._closing.holdings.append(self._imports)
        self._closing.before(later.settle, self._own_stream.close)
        self._enter()

    def _prepare(self) -> None:
        check_ability(self._driver, self._handle, "MEMORY_POOLS_SUPPORTED", "memory pools")

    def alloc(self, size: int, alignment: int = 0, stream: int | None = None) -> int:
        """Return the address of `size` bytes: cuMemAllocFromPoolAsync.

        Ready for every stream; if `stream` is given, in its order alone, and without waiting.
        `alignment` may be any power of two.  Where the driver does not give it by itself, it is
        asked for ``size + alignment`` bytes.  Raises as `CudaProvider.alloc`.
        """
        return self._alloc(size, alignment, stream=stream)

    def free(self, ptr: int, size: int, stream: int | None = None) -> None:
        """Give an allocation back to the pool: cuMemFreeAsync.

        After all work of the device's primary context; if `stream` is given, after that of the
        stream alone, and without waiting.  Raises as `CudaProvider.free`.
        """
        with self._pieces.released(ptr, size) as piece:
            if stream is None:
                self.synchronize()
            self._give(piece.origin, stream)
            self._exports.forget(ptr, size)
        self._close_if_unused()

    def granularity(self, size: int = 0) -> int:
        """Return the unit in bytes that pools grow by: cuMemGetAllocationGranularity MINIMUM."""
        return self._unit

    def recommended_granularity(self, size: int = 0) -> int:
        """Return the best unit, cuMemGetAllocationGranularity RECOMMENDED."""
        return self._recommended

    def trim(self, keep_bytes: int | str = 0) -> int:
        """Have the driver's pool give unused memory back: cuMemPoolTrimTo.

        Waits for the frees of this provider.  Returns the bytes that went; `keep_bytes` and what
        is in use stay.
        """
        self._later.settle()
        self._driver.call("cuStreamSynchronize", self.stream)
        return self._pool.trim(parse_size(keep_bytes))

    def stats(self) -> DriverPoolStats:
        """Return what the driver's pool has reserved and given out, now and at most, in bytes.

        Of a pool that others use as well, theirs included.
        """
        return self._pool.stats()

    def reset_highs(self) -> None:
        """Let the highs of `stats` start again from what is now."""
        self._pool.reset_highs()

    @property
    def pool(self) -> int:
        """The CUmemoryPool, for calls of the driver's on it."""
        return self._pool.handle

    @property
    def stream(self) -> int:
        """The CUstream on which memory is taken and given back."""
        return self._own_stream.handle

    def ipc_export(self, ptr: int, size: int) -> bytes:
        """Return what another process needs to open the allocation: cuMemPoolExportPointer.

        The pool itself goes as a file descriptor (cuMemPoolExportToShareableHandle): who opens
        one allocation has a descriptor of all of it.

        Raises
        ------
        InvalidArgument
            No allocation of `size` bytes starts at `ptr`.
        NotSupported
            The pool is not this provider's own, or the device has no handles that are file
            descriptors.
        """
        self._check_ipc()
        with self._pieces.changed(ptr, size) as piece:
            pool_fd, uuid = self._pool.descriptor(), self.ipc_scope()
            # Last, because the driver has no call that takes it back.
            exported = self._driver.call("cuMemPoolExportPointer", piece.origin)
            pointer = struct_bytes(exported, POINTER_SIZE)
            offset = ptr - piece.origin

            def make(exporter: Exporter) -> bytes:
                where = self._pool.id, pool_fd, pointer, offset, size
                return PooledPayload(uuid, exporter, *where).pack()

            return self._exports.enter(ptr, size, [pool_fd], make, own=False)

    def ipc_release(self, payload: bytes) -> None:
        """End an export: who opens it later is told so.  One that has ended already is fine."""
        self._check_ipc()
        PooledPayload.unpack(payload)
        self._exports.end(payload)

    def ipc_descriptors(self, payload: bytes) -> Sequence[int]:
        """Return the pool's descriptor, and one that proves it good; none if the export ended."""
        return self._exports.descriptors(payload)

    def ipc_size(self, payload: bytes) -> int:
        """Return the bytes of the exported allocation."""
        return PooledPayload.unpack(payload).size

    def ipc_open(self, payload: bytes, descriptors: Sequence[int] = ()) -> int:
        """Map another process's allocation, and its pool if it is the first of it.

        cuMemPoolImportFromShareableHandle, cuMemPoolImportPointer.

        Raises
        ------
        IpcError
            The payload is of another device, its memory is gone, or the system does not let this
            process at the descriptors; see `Provider.ipc_open`.
        NotSupported
            This provider is on a pool that is not its own.
        """
        self._check_ipc()
        parsed = PooledPayload.unpack(payload)
        self._check_device(parsed.uuid)
        wanted = parsed.exporter, [parsed.pool_fd], payload, descriptors
        with descriptors_of(self._system, *wanted) as (pool_fd,):
            return self._imports.open(parsed, pool_fd)

    def ipc_close(self, ptr: int, size: int) -> None:
        """Close what `ipc_open` returned, after a wait for the device: cuMemFreeAsync."""
        self._check_ipc()
        self.synchronize()
        self._imports.close(ptr, size, self.stream)
        self._close_if_unused()

    def _rest(self) -> None:
        with self._pieces.none_there() as none:
            if none:
                self._later.settle()
                self._own_stream.rest()
                self._pool.rest()

    def _find_pool(self, pool: Any) -> DriverPool:
        if pool is None:
            return DriverPool.create(self._driver, self.device, shareable=self._shareable)
        if pool == "default":
            return DriverPool.default(self._driver, self._handle)
        return DriverPool(self._driver, _handle_of(pool), owned=False)

    def _take(self, size: int, *, stream: int | None = None, **how: Any) -> int:
        on = self.stream if stream is None else stream
        base = int(self._driver.call("cuMemAllocFromPoolAsync", size, self._pool.handle, on))
        if stream is None:
            try:
                self._driver.call("cuStreamSynchronize", on)
            except BaseException:
                self._abandon(base)
                raise
        return base

    def _abandon(self, base: int) -> None:
        self._later.attempt(partial(self._driver.call, "cuMemFreeAsync", base, self.stream))

    def _give(self, base: int, stream: int | None) -> None:
        on = self.stream if stream is None else stream
        self._driver.call("cuMemFreeAsync", base, on)

    def _check_ipc(self) -> None:
        if Capability.IPC not in self.capabilities:
            raise NotSupported(
                "this memory cannot be opened by other processes: it is of a pool that is not the "
                "provider's own, or the device has no pools shared as file descriptors; use "
                "CudaAsyncProvider(pool=None)"
            )


def _handle_of(pool: Any) -> int:
    """Return a CUmemoryPool as number, from a number or from an object of a binding."""
    handle = as_number(pool)
    if handle is None and hasattr(pool, "__int__") and not isinstance(pool, Number):
        handle = int(pool)
    if handle is None or not 0 < handle <= _LARGEST:
        raise InvalidArgument(f'pool is {pool!r}; use None, "default" or a CUmemoryPool')
    return handle


def _make_stream(driver: CudaDriver, context: PrimaryContext) -> int:
    with context:
        return int(driver.call("cuStreamCreate", _NON_BLOCKING))
