"""Replaying traces to pools."""

from __future__ import annotations

import gc

import pytest

import umfpy
from umfpy.trace import Trace, replay
from umfpy.trace.measure import Target
from umfpy.trace.metered import Metered
from umfpy.trace.workload import training

POOLS = {
    "default": umfpy.Pool,
    "proxy": umfpy.ProxyPool,
    "coarse": lambda provider: umfpy.ProxyPool(umfpy.CoarseProvider(provider)),
}


@pytest.fixture
def small():
    return Trace.from_events(training(steps=2, layers=3, hidden=256), name="small")


@pytest.mark.parametrize("name", POOLS)
def test_every_call_is_made(small, name):
    pool = POOLS[name](umfpy.HostProvider())
    result = replay(small, pool)
    assert (result.allocations, result.frees) == (small.allocations, small.frees)
    assert result.failed == 0
    assert result.peak_live_bytes == small.peak_live_bytes
    assert result.peak_reserved_bytes >= result.peak_live_bytes
    assert result.ns_per_op > 0
    assert pool.stats().live_allocations == 0
    assert pool.stats().allocations == small.allocations
    pool.close()


class Spy:
    """A pool that writes down what it is asked, and refuses some of it."""

    class Piece:
        def __init__(self, spy, name):
            self.spy, self.name = spy, name

        def free(self, stream=None):
            self.spy.calls.append(("free", self.name, stream))
            self.name = None

        def __del__(self):
            if self.name is not None:
                self.spy.calls.append(("drop", self.name))

    def __init__(self, refuse=()):
        self.calls = []
        self.refuse = refuse

    def allocate(self, size, alignment=0, stream=None):
        if size in self.refuse:
            raise umfpy.OutOfMemoryError("no more")
        self.calls.append(("allocate", size, stream))
        return Spy.Piece(self, size)

    def stats(self):
        return umfpy.PoolStats(*[0] * 14)


def test_streams_are_passed_on(load):
    spy = Spy()
    trace = load("a,1,10,5\na,2,20,0\nf,1,,\nf,2,20,9\na,3,30,0\n")
    ended = []
    replay(trace, spy, at_end=lambda: ended.extend(spy.calls))
    assert ended == [
        ("allocate", 10, 5),
        ("allocate", 20, 0),
        ("drop", 10),
        ("free", 20, 9),
        ("allocate", 30, 0),
    ]
    assert spy.calls[len(ended) :] == [("drop", 30)]


def test_what_finds_no_memory_is_counted_and_its_free_left_out(load):
    spy = Spy(refuse=(20,))
    trace = load("a,1,10,0\na,2,20,0\nf,2,,\nf,1,,\na,3,20,0\nf,3,,4\n")
    result = replay(trace, spy)
    assert (result.allocations, result.frees, result.failed) == (1, 1, 2)


def test_other_errors_pass_through(load):
    class Broken(Spy):
        def allocate(self, size, alignment=0, stream=None):
            raise umfpy.DriverError("cuMemAlloc", 999)

    with pytest.raises(umfpy.DriverError):
        replay(load("a,1,10,0\n"), Broken())
    assert gc.isenabled()


def test_an_empty_trace(load):
    with umfpy.Pool(umfpy.HostProvider()) as pool:
        result = replay(load(""), pool)
    assert result.ns_per_op is None
    assert result.utilization == 1.0


@pytest.mark.parametrize("name", POOLS)
def test_measuring_counts_what_reaches_the_provider(small, name):
    provider = umfpy.HostProvider()
    steps = []
    target = Target(provider, POOLS[name])
    measured = target.measure(small, repeat=2, advance=lambda: steps.append(1))
    assert len(steps) == 3
    assert measured.result.failed == 0
    assert measured.provider_allocs >= 1
    assert measured.modelled_driver_us is None
    assert 0 < measured.utilization <= 1
    if name == "proxy":
        assert measured.provider_allocs == small.allocations
        assert measured.provider_frees == small.frees
    if name == "default":
        assert measured.peak_reserved_bytes == measured.result.peak_reserved_bytes
    assert provider.live_count() == 0


@pytest.mark.parametrize("name", POOLS)
def test_a_capacity_holds(small, name):
    capacity = small.peak_live_bytes // 2
    target = Target(umfpy.HostProvider(), POOLS[name], capacity=capacity)
    measured = target.measure(small, repeat=1)
    assert measured.result.failed > 0
    assert measured.peak_reserved_bytes <= capacity


def test_the_clock_of_the_driver_is_read_at_both_ends(small):
    times = iter([100.0, 175.5])
    target = Target(umfpy.HostProvider(), umfpy.Pool, clock_us=lambda: next(times))
    assert target.measure(small, repeat=1).modelled_driver_us == 75.5


def test_a_metered_provider_is_a_provider():
    """A pool on it does what it does on the provider below, and its figures are the pool's."""
    metered = Metered(umfpy.HostProvider())
    with umfpy.Pool(metered) as pool:
        pieces = [pool.allocate(100_000, zero=True) for _ in range(100)]
        stats = pool.stats()
        assert metered.held_bytes == stats.reserved_bytes
        assert metered.peak_bytes == stats.peak_reserved_bytes
        assert metered.allocs == stats.provider_allocs
        pieces.clear()
    assert metered.held_bytes == 0
    assert metered.frees == metered.allocs
    assert metered.memory_info() is not None


def test_decommitted_memory_is_not_held():
    provider = umfpy.HostProvider()
    metered = Metered(provider, capacity=1 << 20)
    ptr = metered.alloc(1 << 20)
    assert metered.memory_info() == (0, 1 << 20)
    metered.decommit(ptr, 1 << 20)
    assert metered.held_bytes == 0
    metered.commit(ptr, 1 << 20)
    assert metered.held_bytes == 1 << 20
    with pytest.raises(umfpy.OutOfMemoryError, match="capacity"):
        metered.alloc(4096)
    metered.free(ptr, 1 << 20)
    assert metered.held_bytes == 0
