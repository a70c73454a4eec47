"""umfpy as the source of PyTorch's CUDA memory: below its own allocator, or instead of it.

>>> pool = umfpy.Pool(umfpy.CudaProvider(0))            # doctest: +SKIP
>>> memory = umfpy.integrations.pytorch.mem_pool(pool)  # doctest: +SKIP
>>> with torch.cuda.use_mem_pool(memory):               # doctest: +SKIP
...     x = torch.zeros(1000, device="cuda")

`mem_pool` is the gentler of the two: PyTorch cuts up what it gets from umfpy, so that its
statistics and snapshots go on working, and running out of memory is its own error.  `install`
hands every single tensor to umfpy.

PyTorch calls C functions, without the GIL, and for as long as it holds memory: they are those of
`Pool.c_interface`, and never go away.
"""

from __future__ import annotations

import importlib
import threading
from typing import Any

from umfpy.arguments import check_device
from umfpy.core.pool import BasePool
from umfpy.errors import DriverUnavailable, InvalidArgument

_lock = threading.Lock()
#: Who serves a device: PyTorch's functions are told the device, and not the pool.
_serving: dict[int, BasePool] = {}
#: PyTorch's objects for our functions; its C++ side may hold bare pointers to them.
_allocators: list[Any] = []
_installed = False


def install(pool: BasePool, *, device: int | None = None) -> None:
    """Have all of PyTorch's CUDA memory of a device come from `pool`, for good.

    Parameters
    ----------
    pool
        A pool of CUDA memory.
    device
        The device's ordinal; if not given, what the pool's provider says.  To use several devices,
        install a pool for each: memory of one without a pool cannot be had.

    Raises
    ------
    DriverUnavailable
        PyTorch is not installed, or it is a build without CUDA.
    InvalidArgument
        PyTorch has used CUDA memory in this process already, which is too late; the device is not
        known, or another pool serves it.

    Notes
    -----
    PyTorch does not notice that memory has run out here: a tensor then has the address 0, and
    fails when it is used; why, is in ``pool.c_interface().last_error``.  Nor has it statistics,
    snapshots or IPC on top of an allocator that is not its own.  Prefer `mem_pool`.
    """
    global _installed
    torch = _import_torch()
    with _lock:
        ordinal = _claim(pool, device)
        if not _installed:
            allocator = _make_allocator(torch, pool)
            try:
                torch._C._cuda_changeCurrentAllocator(allocator)
            except RuntimeError as error:
                raise InvalidArgument(
                    "PyTorch's allocator is in use already; call install() before the first CUDA "
                    f"tensor is made, or use mem_pool() at any time ({error})"
                ) from error
            _allocators.append(allocator)
            _installed = True
        _serve(pool, ordinal)


def mem_pool(pool: BasePool, *, device: int | None = None, **options: Any) -> Any:
    """Return a ``torch.cuda.MemPool`` that takes its segments from `pool`.

    Use it with ``torch.cuda.use_mem_pool``.  PyTorch asks for segments of 2 MiB and more, and
    gives them back when the MemPool goes, or when it is short of memory.

    Parameters
    ----------
    pool, device
        As of `install`.
    options
        Passed on to ``MemPool``: ``use_on_oom``, ``no_split``.

    Raises
    ------
    DriverUnavailable
        PyTorch is not installed, is a build without CUDA, is older than its memory pools (2.5), or
        finds no GPU.
    InvalidArgument
        The device is not known, or another pool serves it.
    """
    torch = _import_torch()
    if not hasattr(torch.cuda, "MemPool"):
        raise DriverUnavailable(
            f"PyTorch {torch.__version__} has no torch.cuda.MemPool: update it to 2.5 or later, "
            "or use install()"
        )
    if not torch.cuda.is_available():
        raise DriverUnavailable(
            "PyTorch finds no GPU (torch.cuda.is_available() is False), without which it makes no "
            "MemPool: install NVIDIA's driver"
        )
    with _lock:
        ordinal = _claim(pool, device)
        allocator = _make_allocator(torch, pool)
        made = torch.cuda.MemPool(allocator, **options)
        _allocators.append(allocator)
        _serve(pool, ordinal)
    return made


def _make_allocator(torch: Any, pool: BasePool) -> Any:
    """PyTorch's object for the C functions, which are the same for every pool."""
    functions = pool.c_interface()
    allocator = torch._C._cuda_customAllocator(functions.device_malloc, functions.device_free)
    # Tensor.record_stream(): without it memory could be used again while a stream reads it.
    allocator.set_record_stream_fn(functions.device_record)
    return allocator


def _claim(pool: object, device: int | None) -> int:
    """The ordinal of the device that `pool` can serve; InvalidArgument if there is none."""
    if not isinstance(pool, BasePool):
        raise InvalidArgument(f"PyTorch needs a umfpy pool, not {pool!r}")
    own = pool.provider.device
    device = own if device is None else check_device(device)
    if device < 0 or (own >= 0 and device != own):
        raise InvalidArgument(
            f"{pool.name!r} holds {pool.provider.memory_type} memory of device {own}, "
            f"which cannot serve device {device}; name another with device="
        )
    other = _serving.get(device)
    if other is not None and other is not pool and not other.closed:
        raise InvalidArgument(
            f"device {device} is served by {other.name!r}: PyTorch says for which device it wants "
            "memory, and not from which pool, so that there can be one a device; close the other "
            "pool first (what it gave stays valid)"
        )
    return device


def _serve(pool: BasePool, device: int) -> None:
    pool.c_interface().serve(device)
    _serving[device] = pool


def _import_torch() -> Any:
    """PyTorch with CUDA, or DriverUnavailable."""
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise DriverUnavailable(
            "PyTorch is not installed: see https://pytorch.org/get-started for a build with CUDA"
        ) from error
    if not hasattr(torch._C, "_cuda_customAllocator"):
        raise DriverUnavailable(
            f"PyTorch {torch.__version__} is a build without CUDA, or older than 2.0: see "
            "https://pytorch.org/get-started for another"
        )
    return torch
