"""PyTorch's calls on umfpy's pools, made in its shapes; PyTorch itself is not needed."""

from __future__ import annotations

import ctypes
import sys
from ctypes import c_int, c_size_t, c_void_p
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.fakes.provider import FakeProvider
from umfpy import Capability, DriverUnavailable, InvalidArgument, Pool
from umfpy.integrations import pytorch as plugin

MIB = 1 << 20


class CustomAllocator:
    """What ``torch._C._cuda_customAllocator`` makes: calls by address, and what it remembers."""

    def __init__(self, malloc: int, free: int) -> None:
        self._malloc = ctypes.CFUNCTYPE(c_void_p, c_size_t, c_int, c_void_p)(malloc)
        self._free = ctypes.CFUNCTYPE(None, c_void_p, c_size_t, c_int, c_void_p)(free)
        self._metadata: dict[int | None, tuple[int, int, int]] = {}

    def set_record_stream_fn(self, address: int) -> None:
        self.record_stream = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)(address)

    def malloc(self, size: int, device: int, stream: int) -> int | None:
        ptr = self._malloc(size, device, stream)
        self._metadata[ptr] = (size, device, stream)
        return ptr

    def delete(self, ptr: int | None) -> None:
        self._free(ptr, *self._metadata.pop(ptr))


class FakeTorch:
    """As much of PyTorch as `umfpy.integrations.pytorch` touches."""

    __version__ = "2.9.0"

    def __init__(self) -> None:
        self.current: CustomAllocator | None = None
        self.initialized = False
        self.made: list[CustomAllocator] = []
        self._C = SimpleNamespace(
            _cuda_customAllocator=self._make, _cuda_changeCurrentAllocator=self._change
        )
        self.cuda = SimpleNamespace(
            MemPool=lambda allocator, **options: (allocator, options), is_available=lambda: True
        )

    def _make(self, malloc: int, free: int) -> CustomAllocator:
        self.made.append(CustomAllocator(malloc, free))
        return self.made[-1]

    def _change(self, allocator: CustomAllocator) -> None:
        if self.initialized:
            raise RuntimeError("Can't swap an already initialized allocator")
        self.current = allocator
        self.initialized = True


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> FakeTorch:
    made = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", made)
    monkeypatch.setattr(plugin, "_serving", {})
    monkeypatch.setattr(plugin, "_allocators", [])
    monkeypatch.setattr(plugin, "_installed", False)
    return made


def pool_of(device: int = 0, **settings: Any) -> Pool:
    return Pool(FakeProvider(capabilities=Capability.STREAMS, device=device, **settings))


def test_tensors_lie_in_the_pool(torch: FakeTorch) -> None:
    # given
    pool = pool_of()
    plugin.install(pool)

    # when
    ptr = torch.current.malloc(1000, 0, 5)

    # then
    info = pool.map.describe(ptr)
    assert (info["size"], info["stream"]) == (1000, 5)
    torch.current.delete(ptr)
    assert pool.stats().live_allocations == 0
    assert pool.c_interface().refused == 0


def test_an_empty_tensor_has_no_memory(torch: FakeTorch) -> None:
    pool = pool_of()
    plugin.install(pool)
    ptr = torch.current.malloc(0, 0, 0)
    assert ptr is None
    torch.current.delete(ptr)
    assert pool.c_interface().refused == 0


def test_a_recorded_stream_keeps_memory_from_being_used_again(torch: FakeTorch) -> None:
    # given
    pool = pool_of()
    plugin.install(pool)
    ptr = torch.current.malloc(1000, 0, 5)
    torch.current.record_stream(ptr, 6)

    # when
    torch.current.delete(ptr)
    other = torch.current.malloc(1000, 0, 5)

    # then
    assert other != ptr
    pool.synchronize()
    torch.current.delete(other)
    pool.synchronize()
    assert torch.current.malloc(1000, 0, 7) in (ptr, other)


def test_a_pool_for_each_device(torch: FakeTorch) -> None:
    # given
    pools = [pool_of(device) for device in range(2)]
    for pool in pools:
        plugin.install(pool)
    assert len(torch.made) == 1, "PyTorch has one allocator for all devices"

    for device, pool in enumerate(pools):
        # when
        ptr = torch.current.malloc(100, device, 0)

        # then
        assert pool.map.describe(ptr) is not None
        torch.current.delete(ptr)
    assert torch.current.malloc(100, 2, 0) is None, "no pool serves this one"


def test_too_late(torch: FakeTorch) -> None:
    torch.initialized = True
    with pytest.raises(InvalidArgument, match="before the first CUDA tensor"):
        plugin.install(pool_of())
    plugin.mem_pool(pool_of())


def test_a_mem_pool_takes_segments_from_the_pool(torch: FakeTorch) -> None:
    # given
    pool = pool_of(capacity=64 * MIB)

    # when
    allocator, options = plugin.mem_pool(pool, use_on_oom=True)
    segment = allocator.malloc(20 * MIB, 0, 3)

    # then
    assert options == {"use_on_oom": True}
    assert torch.current is None
    assert pool.map.describe(segment + 5 * MIB)["base"] == segment
    assert allocator.malloc(60 * MIB, 0, 3) is None, "which PyTorch makes its own error of"
    allocator.delete(segment)
    assert pool.stats().live_allocations == 0


def test_a_device_has_one_pool_at_a_time(torch: FakeTorch) -> None:
    # given
    first, second = pool_of(), pool_of()
    allocator, _ = plugin.mem_pool(first)
    plugin.mem_pool(first)
    kept = allocator.malloc(2 * MIB, 0, 0)

    # when
    with pytest.raises(InvalidArgument, match="close the other pool first"):
        plugin.mem_pool(second)
    with pytest.warns(ResourceWarning, match="1 live allocations"):
        first.close()
    plugin.mem_pool(second)

    # then what the first one gave goes back there
    allocator.delete(kept)
    assert not first.provider.live
    assert second.c_interface().refused == 0


@pytest.mark.parametrize(
    ("pool", "device"),
    [
        ("pool", None),
        (pool_of(1), 0),
        (pool_of(-1), None),
        (pool_of(0), -1),
        *((pool_of(0), wrong) for wrong in ("0", 0.0, False, [])),
    ],
)
def test_pools_that_are_none(torch: FakeTorch, pool: Any, device: int | None) -> None:
    for use in (plugin.install, plugin.mem_pool):
        with pytest.raises(InvalidArgument):
            use(pool, device=device)
    assert torch.made == []


def test_host_memory_serves_the_device_it_is_told(torch: FakeTorch) -> None:
    pool = Pool(FakeProvider(device=-1, memory_type="host"))
    plugin.install(pool, device=4)
    ptr = torch.current.malloc(100, 4, 0)
    assert pool.map.describe(ptr) is not None
    torch.current.delete(ptr)


def test_without_pytorch_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    for use in (plugin.install, plugin.mem_pool):
        with pytest.raises(DriverUnavailable, match="not installed"):
            use(pool_of())


def test_a_mem_pool_needs_a_gpu(torch: FakeTorch) -> None:
    torch.cuda.is_available = lambda: False
    with pytest.raises(DriverUnavailable, match="finds no GPU"):
        plugin.mem_pool(pool_of())
    plugin.install(pool_of())


def test_builds_that_lack_something(torch: FakeTorch) -> None:
    del torch.cuda.MemPool
    with pytest.raises(DriverUnavailable, match=r"2\.9\.0 has no torch\.cuda\.MemPool"):
        plugin.mem_pool(pool_of())
    del torch._C._cuda_customAllocator
    for use in (plugin.install, plugin.mem_pool):
        with pytest.raises(DriverUnavailable, match="without CUDA"):
            use(pool_of())


REAL = """
import torch
from tests.fakes.provider import FakeProvider
from umfpy import Pool
from umfpy.integrations import pytorch

for device in (0, 1):
    pytorch.install(Pool(FakeProvider(device=device)))
print(torch.cuda.memory.get_allocator_backend())
"""


def test_the_real_one_takes_the_functions_or_says_that_it_cannot() -> None:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    if not hasattr(torch._C, "_cuda_customAllocator"):
        with pytest.raises(DriverUnavailable, match="without CUDA"):
            plugin.mem_pool(pool_of())
        return
    if not torch.cuda.is_available():
        with pytest.raises(DriverUnavailable, match="no GPU"):
            plugin.mem_pool(pool_of())
    assert_silent(run_program(REAL), "pluggable")
