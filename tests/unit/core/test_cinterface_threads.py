"""C threads without the GIL on a pool that Python uses at the same time."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from tests.fakes.capi import DeviceCalls, PortCalls
from tests.fakes.provider import FakeProvider
from umfpy import Capability, Growth, Pool, ProxyPool
from umfpy.bench.native.loop import PoolFunctions, load, why_absent
from umfpy.bench.workload import Generator, Sizes, Workload
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
MIB = 1 << 20
DEVICE = 220


class Together:
    """Runs functions in threads of their own; what one raises, `run` raises."""

    def __init__(self) -> None:
        self.errors: list[BaseException] = []

    def run(self, *functions: Callable[[], object]) -> None:
        threads = [threading.Thread(target=self._guard, args=(f,)) for f in functions]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.errors:
            raise self.errors[0]

    def _guard(self, function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:  # noqa: BLE001  (raised again in `run`)
            self.errors.append(error)


def churn(c: DeviceCalls, seed: int, steps: int) -> None:
    """Random calls on two streams; every block is one's own while one has it."""
    chance = random.Random(seed)
    held: dict[int, int] = {}
    for _ in range(steps):
        if held and chance.random() < 0.5:
            ptr = chance.choice(list(held))
            c.free(ptr, held.pop(ptr), stream=chance.randrange(2))
        else:
            size = chance.randrange(1, 20 * KIB)
            ptr = c.malloc(size, stream=chance.randrange(2))
            assert ptr is not None
            assert ptr not in held
            held[ptr] = size
    for ptr, size in held.items():
        c.free(ptr, size, stream=0)


@pytest.mark.parametrize("kind", [Pool, ProxyPool])
def test_calls_of_both_worlds_at_once(kind: type[ProviderPool]) -> None:
    # given
    pool = kind(FakeProvider(capabilities=Capability.STREAMS))
    c = DeviceCalls(pool, DEVICE)

    def in_python() -> None:
        for turn in range(300):
            with pool.allocate(100 * turn, stream=turn % 3):
                pool.check("full")
            if turn % 50 == 0:
                pool.trim()
                pool.synchronize()

    # when
    Together().run(lambda: churn(c, 1, 2000), lambda: churn(c, 2, 2000), in_python)

    # then
    pool.check("full")
    assert (c.refused, pool.stats().live_allocations) == (0, 0)
    pool.close()
    assert not pool.provider.live


def test_two_c_loops_while_python_allocates_grows_and_trims() -> None:
    if why_absent() is not None:
        pytest.skip(f"{why_absent()}")
    # given
    loop = load()
    pool = Pool(FakeProvider(), growth=Growth(minimum=1 * MIB, maximum=4 * MIB))
    interface = pool.c_interface()
    functions = PoolFunctions(interface.param, interface.malloc, interface.free)
    works = []
    for seed in (1, 2):
        made = Generator(loop, 200, Sizes(1, 64 * KIB), seed)
        prepare, timed = made.ramp(100), made.toggle(200_000)
        works.append(Workload(timed, made.slots, prepare=prepare, drain=made.drain()))
    finished = threading.Event()

    def in_c() -> None:
        try:
            loop.run_threads(functions, [work.work for work in works])
        finally:
            finished.set()

    def in_python() -> None:
        held = []
        while not finished.is_set():
            held = [pool.allocate(7 * KIB) for _ in range(20)]
            pool.check("full")
            pool.trim()
        del held

    # when
    Together().run(in_c, in_python)

    # then
    pool.check("full")
    assert (interface.refused, pool.stats().live_allocations) == (0, 0)
    assert pool.stats().allocations > 200_000


def free_and_close(pool: Pool, count: int) -> int:
    """Free `count` blocks in two C threads while a third thread closes; return the refused."""
    c = PortCalls(pool)
    held = [c.malloc(5000) for _ in range(count)]
    start = threading.Barrier(3)

    def free(mine: list[int | None]) -> None:
        start.wait()
        for ptr in mine:
            c.free(ptr)

    def close() -> None:
        start.wait()
        pool.close()

    Together().run(lambda: free(held[::2]), lambda: free(held[1::2]), close)
    return c.refused


# However many are live when it happens.
@pytest.mark.filterwarnings("ignore:.*was closed with:ResourceWarning")
def test_closing_while_frees_go_on_leaves_nothing_behind() -> None:
    for _ in range(50):
        provider = FakeProvider(capabilities=Capability.STREAMS)
        pool = Pool(provider, growth=Growth(minimum=64 * KIB, maximum=64 * KIB))
        assert free_and_close(pool, 100) == 0
        assert provider.live == {}


def test_which_pool_serves_a_device_changes_under_its_callers() -> None:
    # given
    pools = [Pool(FakeProvider()), Pool(FakeProvider()), ProxyPool(FakeProvider())]
    c = DeviceCalls(pools[0], DEVICE + 1)
    for pool in pools:
        pool.c_interface().serve(DEVICE + 1)

    def switch() -> None:
        for turn in range(2000):
            pools[turn % 3].c_interface().serve(DEVICE + 1)

    # when
    Together().run(lambda: churn(c, 3, 2000), lambda: churn(c, 4, 2000), switch)

    # then
    assert [pool.stats().live_allocations for pool in pools] == [0, 0, 0]
    assert sum(pool.c_interface().refused for pool in pools) == 0
