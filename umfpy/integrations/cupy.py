"""umfpy as the allocator of CuPy.

>>> umfpy.integrations.cupy.install(umfpy.Pool(umfpy.CudaProvider(0)))   # doctest: +SKIP

From then on every CuPy array lies in the pool, and goes back to it when it is dropped.
"""

from __future__ import annotations

import importlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol, TypeAlias

from umfpy.arguments import as_number, check_number
from umfpy.core.pool import BasePool
from umfpy.errors import DriverUnavailable, InvalidArgument, OutOfMemoryError
from umfpy.provider import Provider


class AnyPool(Protocol):
    """A pool, or what stands in for one, such as `umfpy.trace.Recorder`."""

    @property
    def name(self) -> str: ...

    @property
    def provider(self) -> Provider: ...

    def allocate(self, size: int, alignment: int = 0, stream: Any = None) -> Any: ...


#: One pool, or one for each device: {ordinal: pool}.
Pools: TypeAlias = "AnyPool | Mapping[int, AnyPool]"

#: The runtime's answers that mean there is none: the driver is missing, too old, or emulated.
#: cudaErrorStubLibrary, ...InsufficientDriver, ...CallRequiresNewerDriver, ...NoDevice
_NO_RUNTIME = frozenset({34, 35, 36, 100})

_LEGACY_STREAM = 1  # CU_STREAM_LEGACY: another name of stream 0
_PER_THREAD_STREAM = 2  # CU_STREAM_PER_THREAD: one name, a stream of its own in each thread

_lock = threading.Lock()
#: What `install` replaced, and by what; the newest is last.
_installed: list[tuple[Any, Callable[[int], Any]]] = []
_threads = threading.local()
_thread_numbers = itertools.count(1)


def install(pool: Pools, *, device: int | None = None) -> None:
    """Make CuPy take its memory from `pool`, in all threads.

    Parameters
    ----------
    pool
        A pool of CUDA memory, or a mapping of device ordinals to pools.  On devices without one
        CuPy goes on with the allocator that it had.  A `umfpy.trace.Recorder` takes a pool's place.
    device
        The ordinal of a single pool; if not given, what its provider says.

    Raises
    ------
    DriverUnavailable
        CuPy is not installed.
    InvalidArgument
        The device is not known, or `using` is active in this thread.

    Notes
    -----
    Arrays are ordered by the current CuPy stream of the thread that makes them, as in CuPy's own
    pool.  Where memory has run out, CuPy gets an error that is its own and umfpy's at once; see
    `umfpy.integrations.cupy_errors`.  CuPy calls the allocator directly: do not wrap it in
    ``cupy.cuda.MemoryPool``, which would pool a second time (it works, though).
    """
    cupy = _import_cupy()
    with _lock:
        before = cupy.cuda.get_allocator()
        allocator = fastest(Allocator(pool, device=device, otherwise=before))
        _set_allocator(cupy, allocator)
        _installed.append((before, allocator))


def uninstall() -> None:
    """Give CuPy back the allocator that the last `install` replaced; without one, do nothing.

    Arrays that are alive stay valid, and go back to the pool when they are dropped.

    Raises
    ------
    InvalidArgument
        `using` is active in this thread, or somebody else has set an allocator since.
    """
    cupy = _import_cupy()
    with _lock:
        if not _installed:
            return
        before, allocator = _installed[-1]
        if cupy.cuda.get_allocator() is not allocator:
            raise InvalidArgument(
                "CuPy's allocator is not the one that install() set, so that it cannot be put "
                "back: leave using() first, or set your own again with cupy.cuda.set_allocator"
            )
        _set_allocator(cupy, before)
        _installed.pop()


@contextmanager
def using(pool: Pools, *, device: int | None = None) -> Iterator[None]:
    """Have this thread's CuPy arrays lie in `pool`, inside a ``with``; arguments as `install`."""
    cupy = _import_cupy()
    allocator = Allocator(pool, device=device, otherwise=cupy.cuda.get_allocator())
    with cupy.cuda.using_allocator(fastest(allocator)):
        yield


class Allocator:
    """What CuPy calls for memory: ``allocator(size) -> cupy.cuda.MemoryPointer``.

    Parameters
    ----------
    pool, device
        As of `install`.
    otherwise
        The allocator for devices that have no pool here.
    """

    def __init__(self, pool: Pools, *, device: int | None = None, otherwise: Any = None) -> None:
        self._cupy = _import_cupy()
        self._errors = importlib.import_module("umfpy.integrations.cupy_errors")
        self.pools = _by_device(pool, device)
        self._otherwise = otherwise

    def __call__(self, size: int) -> Any:
        device = self._current_device()
        pool = self.pools.get(device)
        if pool is None:
            return self._elsewhere(size, device)
        cuda = self._cupy.cuda
        if size == 0:
            return cuda.MemoryPointer(cuda.UnownedMemory(0, 0, pool, device), 0)
        try:
            allocation = pool.allocate(size, stream=self._current_stream(device))
        except OutOfMemoryError as error:
            raise self.out_of_memory(error) from error
        # Dropping the memory drops the allocation, in whatever thread, on whatever device.
        memory = cuda.UnownedMemory(allocation.ptr, size, allocation, device)
        return cuda.MemoryPointer(memory, 0)

    def out_of_memory(self, error: OutOfMemoryError) -> Exception:
        """Return a pool's error as one that is CuPy's as well."""
        made: Exception = self._errors.CupyOutOfMemoryError.of(error)
        return made

    def _elsewhere(self, size: int, device: int) -> Any:
        if self._otherwise is None:
            raise InvalidArgument(
                f"there is a pool for device {', '.join(map(str, self.pools))}, none for {device}"
            )
        return self._otherwise(size)

    def _current_device(self) -> int:
        """The device of this thread.  Where CUDA's runtime does not start it is the first one."""
        try:
            return int(self._cupy.cuda.runtime.getDevice())
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status not in _NO_RUNTIME:
                raise
            return min(self.pools)

    def _current_stream(self, device: int) -> int:
        """The stream of this thread, as a number that means the same stream in every thread."""
        try:
            stream = int(self._cupy.cuda.get_current_stream(device).ptr)
        except self._cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status not in _NO_RUNTIME:
                raise
            return 0  # no runtime, no streams
        if stream == _PER_THREAD_STREAM:
            return _own_stream()
        return 0 if stream == _LEGACY_STREAM else stream

    def __repr__(self) -> str:
        return f"Allocator({self.pools!r})"


def fastest(allocator: Allocator) -> Callable[[int], Any]:
    """Return what CuPy is to call for `allocator`: compiled, if that is sure to be the same.

    `_cupy.Fast` asks CuPy's private C functions for the current device and stream.  They are used
    if this CuPy has them under the expected signatures, and they say what its public functions
    say, on a stream of their own too.  Without a GPU nothing can be compared, nor is there any
    hurry.  What only stands in for a pool gives no allocations that it could look into.

    CuPy's ``CFunctionAllocator`` over `Pool.c_interface` is no choice: it passes no stream, and
    takes NULL for memory.
    """
    cuda = _import_cupy().cuda
    if not all(isinstance(pool, BasePool) for pool in allocator.pools.values()):
        return allocator
    fast = _compiled(allocator, cuda)
    if fast is None:
        return allocator
    try:
        here = _agrees(fast, cuda)
        with cuda.Stream(non_blocking=True):
            return fast if here and _agrees(fast, cuda) else allocator
    except cuda.runtime.CUDARuntimeError:
        return allocator


def _compiled(allocator: Allocator, cuda: Any) -> Any:
    """The compiled allocator, unverified; None if this CuPy lacks what it needs."""
    try:
        module = importlib.import_module("umfpy.integrations._cupy")
        runtime = importlib.import_module("cupy_backends.cuda.api.runtime")
        streams = importlib.import_module("cupy_backends.cuda.stream")
        return module.Fast(
            allocator,
            device=runtime.__pyx_capi__["getDevice"],
            stream=streams.__pyx_capi__["get_stream_ptr"],
            memory=cuda.UnownedMemory,
            pointer=cuda.MemoryPointer,
        )
    except (ImportError, AttributeError, KeyError, InvalidArgument):
        return None


def _agrees(fast: Any, cuda: Any) -> bool:
    """Whether the private functions say what the public ones do, in this thread and now."""
    device = cuda.runtime.getDevice()
    same: bool = fast.current() == (device, cuda.get_current_stream(device).ptr)
    return same


def _own_stream() -> int:
    """A number for this thread's default stream; no other stream has it, now or later."""
    if not hasattr(_threads, "stream"):
        _threads.stream = (1 << 63) | next(_thread_numbers)
    number: int = _threads.stream
    return number


def _by_device(pool: Pools, device: int | None) -> dict[int, AnyPool]:
    """The pools by device; InvalidArgument where that is not clear."""
    if isinstance(pool, Mapping):
        if device is not None or not pool:
            raise InvalidArgument("give a mapping of at least one device to a pool, and no device")
        pools = dict(pool)
    else:
        pools = {_device_of(pool) if device is None else check_number(device, "device"): pool}
    for ordinal, one in pools.items():
        number = as_number(ordinal)
        if not _is_pool(one) or number is None or number < 0:
            raise InvalidArgument(
                f"CuPy needs a pool for each device ordinal from 0 on, not {one!r} for {ordinal!r}"
            )
    return {int(ordinal): one for ordinal, one in pools.items()}


def _is_pool(pool: object) -> bool:
    return isinstance(pool, BasePool) or (
        callable(getattr(pool, "allocate", None))
        and isinstance(getattr(pool, "provider", None), Provider)
    )


def _device_of(pool: AnyPool) -> int:
    if not _is_pool(pool):
        raise InvalidArgument(f"CuPy needs a umfpy pool, not {pool!r}")
    if pool.provider.device < 0:
        raise InvalidArgument(
            f"{pool.name!r} holds {pool.provider.memory_type} memory, which belongs to no device; "
            "say which device uses it: install(pool, device=0)"
        )
    return pool.provider.device


def _set_allocator(cupy: Any, allocator: Any) -> None:
    try:
        cupy.cuda.set_allocator(allocator)
    except ValueError as error:
        raise InvalidArgument(
            f"CuPy's allocator cannot be changed while another is in use in this thread: {error}"
        ) from error


def _import_cupy() -> Any:
    try:
        return importlib.import_module("cupy")
    except ModuleNotFoundError as error:
        if error.name != "cupy":
            raise
        raise DriverUnavailable(
            "CuPy is not installed: pip install 'umfpy[cupy-cuda13x]', or 'umfpy[cupy-cuda12x]' "
            "for drivers of CUDA 12"
        ) from error
