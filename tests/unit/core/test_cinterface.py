"""A pool called from C, in the two shapes that libraries know."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest

from tests.fakes.capi import DeviceCalls, PortCalls, functions_in
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import (
    Capability,
    CoarseProvider,
    Growth,
    InvalidArgument,
    OutOfMemoryError,
    Pool,
    ProxyPool,
)
from umfpy.core.cinterface import CInterface
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
MIB = 1 << 20
DEVICE = 200  # one that no other test is served on


def streaming(**settings: object) -> FakeProvider:
    return FakeProvider(capabilities=Capability.STREAMS | Capability.ZERO, **settings)


@pytest.fixture(params=["pool", "proxy", "coarse", "nested"])
def pool(request: pytest.FixtureRequest) -> Iterator[ProviderPool]:
    """Pools that answer under their lock alone, and ones that need Python for every call."""
    provider = streaming(capacity=64 * MIB)
    below: object = provider
    if request.param == "coarse":
        below = CoarseProvider(provider)
    if request.param == "nested":
        below = Pool(provider)
    made = (Pool if request.param in ("pool", "nested") else ProxyPool)(below)
    yield made
    made.check("full")
    assert made.stats().live_allocations == 0
    made.close()


def test_memory_comes_and_goes_in_cupys_shape(pool: ProviderPool) -> None:
    # given
    c = PortCalls(pool)

    # when
    first, second = c.malloc(1000), c.malloc(1000)

    # then
    assert abs(first - second) >= 1000
    info = pool.map.describe(first + 999)
    assert (info["base"], info["size"], info["owned"]) == (first, 1000, False)
    c.free(first)
    c.free(second)
    assert (pool.stats().live_allocations, c.refused) == (0, 0)


def test_memory_comes_and_goes_in_pytorchs_shape(pool: ProviderPool) -> None:
    c = DeviceCalls(pool, DEVICE)
    ptr = c.malloc(5000, stream=7)
    assert pool.map.describe(ptr)["size"] == 5000
    c.free(ptr, 5000, stream=7)
    assert (pool.stats().live_allocations, c.refused) == (0, 0)


def test_python_frees_what_c_took_and_the_other_way_round(pool: ProviderPool) -> None:
    c = PortCalls(pool)
    pool.free(c.malloc(100))
    c.free(pool.malloc(100))
    assert c.refused == 0


def test_no_bytes_are_null(pool: ProviderPool) -> None:
    assert PortCalls(pool).malloc(0) is None
    assert DeviceCalls(pool, DEVICE).malloc(0, stream=0) is None
    assert pool.c_interface().last_error is None


def test_null_is_freed_silently(pool: ProviderPool) -> None:
    c = PortCalls(pool)
    c.free(None)
    DeviceCalls(pool, DEVICE).free(None, 0, stream=0)
    assert c.refused == 0


@pytest.mark.parametrize("size", [65 * MIB, 1 << 62, 1 << 63, (1 << 64) - 513, (1 << 64) - 1])
def test_what_there_is_not_is_null_with_a_reason(pool: ProviderPool, size: int) -> None:
    c = PortCalls(pool)
    assert c.malloc(size) is None
    assert isinstance(pool.c_interface().last_error, OutOfMemoryError)
    assert pool.c_interface().last_error.requested == size
    ptr = c.malloc(1)
    assert ptr
    c.free(ptr)


def test_a_failing_provider_is_null_with_its_error() -> None:
    provider = FakeProvider()
    pool = Pool(provider)
    c = PortCalls(pool)
    provider.fail()
    assert c.malloc(100) is None
    assert isinstance(pool.c_interface().last_error, FakeFailure)
    c.free(c.malloc(100))


def test_the_limit_holds(pool: ProviderPool) -> None:
    c = PortCalls(pool)
    pool.limit_bytes = 1 * MIB
    assert c.malloc(2 * MIB) is None
    pool.limit_bytes = None
    ptr = c.malloc(2 * MIB)
    assert ptr
    c.free(ptr)


def test_frees_of_what_is_not_live_change_nothing_and_are_counted(pool: ProviderPool) -> None:
    # given
    c = PortCalls(pool)
    ptr = c.malloc(1000)
    owned = pool.allocate(1000)
    gone = c.malloc(3000)
    c.free(gone)
    before = pool.stats()

    # when
    for wrong in (gone, ptr + 512, owned.ptr, 0x1234, (1 << 64) - 1):
        c.free(wrong)

    # then
    assert c.refused == 5
    assert pool.stats() == before
    c.free(ptr)
    owned.free()


def test_a_wrong_size_is_refused_in_pytorchs_shape(pool: ProviderPool) -> None:
    c = DeviceCalls(pool, DEVICE)
    ptr = c.malloc(1000, stream=0)
    for wrong in (0, 999, 1001, 1 << 63):
        c.free(ptr, wrong, stream=0)
    assert (c.refused, pool.stats().live_allocations) == (4, 1)
    c.free(ptr, 1000, stream=0)


def test_a_pool_that_clears_clears_for_c_too() -> None:
    provider = streaming()
    pool = Pool(provider, zero=True)
    c = DeviceCalls(pool, DEVICE)
    for times in (1, 2):
        ptr = c.malloc(1000, stream=9)
        assert provider.counts["zero"] == times
        assert provider.calls[-1] == ("zero", ptr, 1000, 9)
        c.free(ptr, 1000, stream=9)


def test_memory_freed_on_one_stream_is_not_given_to_another_before_the_device_was_waited_for():
    # given
    provider = streaming()
    pool = Pool(provider, growth=Growth(minimum=64 * KIB, maximum=64 * KIB))
    c = DeviceCalls(pool, DEVICE)
    first = c.malloc(64 * KIB, stream=1)

    # when freed on another stream than it was taken on
    c.free(first, 64 * KIB, stream=2)
    waits = provider.counts["synchronize"]
    again = c.malloc(64 * KIB, stream=2)

    # then that stream has it at once
    assert (again, provider.counts["synchronize"]) == (first, waits)
    c.free(again, 64 * KIB, stream=2)

    # and another one only after a wait
    c.free(c.malloc(64 * KIB, stream=1), 64 * KIB, stream=1)
    assert provider.counts["synchronize"] == waits + 1


def test_recorded_memory_is_nobodys_before_the_device_was_waited_for() -> None:
    # given
    provider = streaming()
    pool = Pool(provider, growth=Growth(minimum=64 * KIB, maximum=64 * KIB))
    c = DeviceCalls(pool, DEVICE)
    ptr = c.malloc(64 * KIB, stream=1)

    # when
    c.record(ptr, stream=2)
    c.record(0x1234, stream=2)
    c.free(ptr, 64 * KIB, stream=1)

    # then
    for stream in (1, 2):
        waits = provider.counts["synchronize"]
        again = c.malloc(64 * KIB, stream=stream)
        assert provider.counts["synchronize"] == waits + 1
        c.record(again, stream=stream + 1)
        c.free(again, 64 * KIB, stream=stream)
    pool.check("full")


def test_recording_the_streams_own_use_costs_nothing() -> None:
    provider = streaming()
    pool = Pool(provider)
    c = DeviceCalls(pool, DEVICE)
    ptr = c.malloc(1000, stream=3)
    c.record(ptr, stream=3)
    c.free(ptr, 1000, stream=3)
    assert c.malloc(1000, stream=3) == ptr
    assert provider.counts["synchronize"] == 0
    c.free(ptr, 1000, stream=3)


def test_each_device_has_its_pool() -> None:
    # given
    here, there = Pool(FakeProvider()), Pool(FakeProvider())
    on_here, on_there = DeviceCalls(here, DEVICE), DeviceCalls(there, DEVICE + 1)

    # when
    ptr = on_here.malloc(100, stream=0)
    on_there.free(ptr, 100, stream=0)

    # then
    assert (on_there.refused, here.stats().live_allocations) == (1, 1)
    on_here.free(ptr, 100, stream=0)
    assert on_here.refused == 0


def test_memory_goes_back_to_the_pool_that_served_before() -> None:
    # given
    before, after = Pool(FakeProvider()), ProxyPool(FakeProvider())
    old = DeviceCalls(before, DEVICE)
    kept = old.malloc(100, stream=0)

    # when
    new = DeviceCalls(after, DEVICE)
    fresh = new.malloc(100, stream=0)
    old.interface.serve(DEVICE)
    old.interface.serve(DEVICE)

    # then
    assert after.map.describe(fresh) is not None
    for ptr in (kept, fresh):
        new.free(ptr, 100, stream=0)
    assert (before.stats().live_allocations, after.stats().live_allocations) == (0, 0)
    assert (old.refused, new.refused) == (0, 0)


@pytest.mark.parametrize("device", [-1, 256, 1 << 20])
def test_devices_that_are_none(device: int) -> None:
    c = DeviceCalls(Pool(FakeProvider()), DEVICE)
    with pytest.raises(InvalidArgument, match="0 to 255"):
        c.interface.serve(device)
    assert c.malloc(100, stream=0, device=device) is None
    c.free(0x1000, 100, stream=0, device=device)
    assert c.malloc(100, stream=0, device=DEVICE + 50) is None, "nobody serves it"
    assert c.refused == 0


def test_the_capsule_holds_the_same_addresses() -> None:
    pool = Pool(FakeProvider())
    interface = pool.c_interface()
    assert functions_in(interface.capsule) == [
        interface.param,
        interface.malloc,
        interface.free,
        interface.device_malloc,
        interface.device_free,
        interface.device_record,
    ]


def test_there_is_one_interface_a_pool() -> None:
    pool = Pool(FakeProvider())
    assert pool.c_interface() is pool.c_interface()
    with pytest.raises(TypeError):
        CInterface(None)
    with pytest.raises(TypeError):
        CInterface(ctypes)
