"""The operations, and the C loop that replays them."""

from __future__ import annotations

import ctypes

import pytest

import umfpy
from umfpy.bench.contenders.simulated import SimulatedProvider
from umfpy.bench.native.loop import RELEASE, TAKE, AllocationFailed, PoolFunctions, load
from umfpy.bench.traces import workload_of
from umfpy.bench.workload import Generator, Sizes, Workload, count_operations, pack
from umfpy.trace import Event, Trace

SIZES = Sizes(512, 64 << 10)


def functions_of(pool: umfpy.Pool) -> PoolFunctions:
    interface = pool.c_interface()
    return PoolFunctions(interface.param, interface.malloc, interface.free)


def replay(ops, slots: int) -> list[int]:
    """Check that every operation makes sense, in Python; return the live bytes after each."""
    held: dict[int, int] = {}
    live = []
    for op in ops:
        assert op.slot < slots
        if op.kind & RELEASE:
            del held[op.slot]
        if op.kind & TAKE:
            assert op.slot not in held
            held[op.slot] = op.size
        live.append(sum(held.values()))
    return live


def test_random_operations_never_take_a_full_slot_or_free_an_empty_one():
    generator = Generator(load(), 50, SIZES)
    parts = [generator.ramp(25), generator.toggle(500), generator.replace(500), generator.drain()]

    live = replay([op for part in parts for op in part], 50)

    assert live[-1] == 0
    assert generator.peak_live_bytes == max(live)


def test_the_same_seed_gives_the_same_operations():
    def operations(seed: int) -> bytes:
        return bytes(Generator(load(), 10, SIZES, seed).toggle(100))

    assert operations(5) == operations(5)
    assert operations(5) != operations(6)


@pytest.mark.parametrize("logarithmic", [False, True])
def test_sizes_keep_to_their_bounds(logarithmic):
    generator = Generator(load(), 1, Sizes(512, 8 << 20, logarithmic=logarithmic))

    sizes = [op.size for op in generator.replace(2_000)]

    assert min(sizes) >= 512
    assert max(sizes) <= 8 << 20
    # Half of the logarithms lie below the geometric mean of the bounds, 64 KiB.
    low = sum(size < 64 << 10 for size in sizes) / len(sizes)
    assert 0.4 < low < 0.6 if logarithmic else low < 0.05


def test_a_slot_that_is_replaced_counts_as_two_operations():
    assert count_operations(pack([(TAKE, 0, 1), (TAKE | RELEASE, 0, 1), (RELEASE, 0, 0)])) == 4


def test_the_loop_does_what_the_operations_say_and_leaves_nothing():
    with umfpy.Pool(SimulatedProvider()) as pool:
        generator = Generator(load(), 20, SIZES)
        workload = Workload(generator.toggle(300), generator.slots, drain=generator.drain())

        elapsed = load().run(functions_of(pool), workload.work, passes=3)

        stats = pool.stats()
        assert elapsed > 0
        assert stats.live_allocations == 0
        assert stats.peak_requested_bytes == generator.peak_live_bytes
        assert stats.frees == stats.allocations
        pool.check()


def test_threads_share_a_pool():
    with umfpy.Pool(SimulatedProvider()) as pool:
        generators = [Generator(load(), 20, SIZES, seed) for seed in (1, 2)]
        workloads = [Workload(g.replace(500), g.slots, drain=g.drain()) for g in generators]

        elapsed = load().run_threads(functions_of(pool), [w.work for w in workloads])

        assert elapsed > 0
        assert pool.stats().allocations == 1_000
        assert pool.stats().live_allocations == 0
        pool.check()


def test_an_allocation_that_fails_stops_the_loop():
    with umfpy.Pool(SimulatedProvider(), limit_bytes="2MiB") as pool:
        workload = Workload(pack([(TAKE, 0, 16 << 20)]), (ctypes.c_void_p * 1)())

        with pytest.raises(AllocationFailed):
            load().run(functions_of(pool), workload.work)
        with pytest.raises(AllocationFailed):
            load().run_threads(functions_of(pool), [workload.work, workload.work])


def test_a_trace_becomes_a_workload_that_can_be_repeated():
    events = [
        Event("a", 1, 100, 0),
        Event("a", 2, 200, 0),
        Event("f", 1, 0, None),
        Event("a", 3, 0, 0),
    ]
    workload = workload_of(Trace.from_events(events, name="made up"))

    with umfpy.Pool(SimulatedProvider()) as pool:
        load().run(functions_of(pool), workload.work, passes=2)

        assert workload.operations == 4
        assert pool.stats().peak_requested_bytes == 300
        assert pool.stats().live_allocations == 0
