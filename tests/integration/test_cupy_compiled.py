"""The compiled way from CuPy to a pool: the same answers as the one in Python."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import umfpy
from tests.fakes.provider import FakeProvider
from umfpy import Capability, InvalidArgument, OutOfMemoryError, Pool
from umfpy.integrations import _cupy
from umfpy.integrations import cupy as plugin

cupy = pytest.importorskip("cupy", reason="CuPy is not installed", exc_type=ModuleNotFoundError)

MIB = 1 << 20
_DEVICE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
_STREAM = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_int)
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Runtime:
    """CuPy's private C functions, as far as they are asked here."""

    def __init__(self) -> None:
        self.device = 0
        self.stream = 0
        self.asked: list[int] = []
        self._functions = (_DEVICE(lambda skip: self.device), _STREAM(self._stream))

    def _stream(self, device: int) -> int:
        self.asked.append(device)
        return self.stream

    def capsule(self, which: int, signature: bytes) -> Any:
        address = ctypes.cast(self._functions[which], ctypes.c_void_p).value
        return _new_capsule(address, signature, None)

    def fast(self, allocator: plugin.Allocator) -> _cupy.Fast:
        return _cupy.Fast(
            allocator,
            device=self.capsule(0, _cupy.DEVICE_SIGNATURE),
            stream=self.capsule(1, _cupy.STREAM_SIGNATURE),
            memory=cupy.cuda.UnownedMemory,
            pointer=cupy.cuda.MemoryPointer,
        )


@pytest.fixture
def runtime() -> Runtime:
    return Runtime()


@pytest.fixture
def pool() -> Iterator[Pool]:
    made = Pool(FakeProvider(capabilities=Capability.STREAMS, capacity=64 * MIB))
    yield made
    assert made.stats().live_allocations == 0
    made.check("full")


@pytest.fixture
def used(pool: Pool, runtime: Runtime) -> Iterator[Pool]:
    """The pool, with CuPy on the compiled way to it."""
    cupy.cuda.set_allocator(runtime.fast(plugin.Allocator(pool)))
    yield pool
    cupy.cuda.set_allocator(None)


def test_arrays_come_from_the_pool_and_go_back(used: Pool) -> None:
    array = cupy.empty(1000, dtype="float32")
    info = umfpy.find(array.data.ptr)
    assert (info.pool, info.size, info.offset) == (used, 4000, 0)
    assert (array.data.mem.ptr, array.data.mem.size) == (array.data.ptr, 4000)
    assert array.data.device_id == 0
    del array
    assert used.stats().live_allocations == 0


@pytest.mark.parametrize("stream", [0, 77, 1 << 47])
def test_the_current_stream_orders_the_memory(used: Pool, runtime: Runtime, stream: int) -> None:
    runtime.stream = stream
    array = cupy.empty(100)
    assert used.map.describe(array.data.ptr)["stream"] == stream
    assert runtime.asked == [0]


def test_memory_of_one_stream_waits_for_the_device_before_another_has_it(
    used: Pool, runtime: Runtime
) -> None:
    # given
    runtime.stream = 5
    first = cupy.cuda.alloc(1000)
    kept = [cupy.cuda.alloc(1000)]
    address = first.ptr
    del first

    # when
    runtime.stream = 6
    other = cupy.cuda.alloc(1000)
    runtime.stream = 5
    same = cupy.cuda.alloc(1000)

    # then
    assert other.ptr != address
    assert same.ptr == address
    assert used.provider.counts["synchronize"] == 0
    del other, same, kept


def test_a_pool_for_each_device(runtime: Runtime) -> None:
    pools = {0: Pool(FakeProvider(device=0)), 3: Pool(FakeProvider(device=3))}
    fast = runtime.fast(plugin.Allocator(pools))
    for runtime.device in (3, 0):
        memory = fast(100)
        assert umfpy.find(memory.ptr).pool is pools[runtime.device]
        assert memory.mem.device_id == runtime.device
        del memory
    assert runtime.asked == [3, 0]


@pytest.mark.parametrize(
    ("device", "stream", "size"),
    [(-1, 0, 100), (0, -1, 100), (0, 1, 100), (0, 2, 100), (7, 0, 100), (0, 0, 0)],
    ids=["no device", "no stream", "legacy", "per thread", "no pool", "no bytes"],
)
def test_what_is_not_plain_goes_to_the_allocator(
    pool: Pool, runtime: Runtime, device: int, stream: int, size: int
) -> None:
    # given
    asked: list[int] = []

    class Allocator(plugin.Allocator):
        def __call__(self, size: int) -> Any:
            asked.append(size)
            return super().__call__(size)

    fast = runtime.fast(Allocator(pool))
    runtime.device, runtime.stream = device, stream

    # when
    memory = fast(size)

    # then
    assert asked == [size]
    assert memory.mem.size == size
    del memory


def test_out_of_memory_is_cupys_error_and_umfpys(used: Pool) -> None:
    for kind in (
        OutOfMemoryError,
        cupy.cuda.memory.OutOfMemoryError,
        cupy.cuda.runtime.CUDARuntimeError,
    ):
        with pytest.raises(kind) as caught:
            cupy.empty(100 * MIB, dtype="uint8")
        assert (caught.value.status, caught.value.requested) == (2, 100 * MIB)
        assert isinstance(caught.value.__cause__, OutOfMemoryError)


@pytest.mark.parametrize("size", [1 << 62, 1 << 63, (1 << 64) - 1, 1 << 64])
def test_enormous_sizes_are_refused(pool: Pool, runtime: Runtime, size: int) -> None:
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        runtime.fast(plugin.Allocator(pool))(size)


@pytest.mark.parametrize("size", [-1, "many", 1.5, None])
def test_sizes_that_are_none(pool: Pool, runtime: Runtime, size: Any) -> None:
    with pytest.raises(InvalidArgument):
        runtime.fast(plugin.Allocator(pool))(size)


def test_frees_come_from_any_thread(used: Pool) -> None:
    arrays = [cupy.empty(100) for _ in range(64)]
    halves = [arrays[::2], arrays[1::2]]
    del arrays
    threads = [threading.Thread(target=half.clear) for half in halves]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert used.stats().live_allocations == 0


def test_other_signatures_are_not_called(pool: Pool, runtime: Runtime) -> None:
    with pytest.raises(InvalidArgument, match="intptr_t"):
        _cupy.Fast(
            plugin.Allocator(pool),
            device=runtime.capsule(0, _cupy.DEVICE_SIGNATURE),
            stream=runtime.capsule(1, b"intptr_t (void)"),
            memory=None,
            pointer=None,
        )


def test_this_cupy_has_the_functions(pool: Pool) -> None:
    fast = plugin._compiled(plugin.Allocator(pool), cupy.cuda)
    assert isinstance(fast, _cupy.Fast)
    assert repr(fast).startswith("Fast(Allocator(")


class FakeCuda:
    """CuPy's public functions, and what the private ones say beside them."""

    class Runtime:
        class CUDARuntimeError(Exception):
            status = 35

        def __init__(self, device: Callable[[], int]) -> None:
            self.getDevice = device

    class Stream:
        ptr = 0

        def __init__(self, non_blocking: bool = False) -> None: ...

        def __enter__(self) -> None:
            FakeCuda.Stream.ptr = 99

        def __exit__(self, *exc_info: object) -> None:
            FakeCuda.Stream.ptr = 0

    def __init__(self, device: Callable[[], int]) -> None:
        self.runtime = self.Runtime(device)

    def get_current_stream(self, device: int) -> Any:
        return self.Stream


@pytest.mark.parametrize(
    ("private", "taken"),
    [
        (lambda: (0, FakeCuda.Stream.ptr), True),
        (lambda: (0, 0), False),
        (lambda: (1, FakeCuda.Stream.ptr), False),
        (lambda: None, False),
    ],
    ids=["the same", "no stream of its own", "another device", "an error"],
)
def test_the_private_functions_have_to_agree(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, private: Callable[[], Any], taken: bool
) -> None:
    # given
    class Fast:
        current = staticmethod(private)

    cuda = FakeCuda(lambda: 0)
    allocator = plugin.Allocator(pool)
    monkeypatch.setattr(plugin, "_compiled", lambda allocator, cuda: Fast())
    monkeypatch.setattr(plugin, "_import_cupy", lambda: type("CuPy", (), {"cuda": cuda}))

    # when
    chosen = plugin.fastest(allocator)

    # then
    assert (chosen is not allocator) == taken
    assert FakeCuda.Stream.ptr == 0


def test_a_runtime_that_fails_leaves_the_allocator_in_python(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> int:
        raise FakeCuda.Runtime.CUDARuntimeError

    allocator = plugin.Allocator(pool)
    monkeypatch.setattr(plugin, "_compiled", lambda allocator, cuda: object())
    monkeypatch.setattr(
        plugin, "_import_cupy", lambda: type("CuPy", (), {"cuda": FakeCuda(failing)})
    )
    assert plugin.fastest(allocator) is allocator


@pytest.mark.parametrize("missing", ["umfpy.integrations._cupy", "cupy_backends.cuda.stream"])
def test_without_the_functions_it_is_python(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, missing, None)
    allocator = plugin.Allocator(pool)
    assert plugin._compiled(allocator, cupy.cuda) is None
    assert plugin.fastest(allocator) is allocator
