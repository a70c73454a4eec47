"""Two C threads and Python on one pool; run by ci/sanitize, with the core under a sanitizer.

    python stress.py LIBRARY [SCENARIO...]

A scenario is a pool, what the C threads do to it, and what Python does meanwhile.  A finding ends
the program with the sanitizer's report; wrong bytes, lost blocks and broken invariants with an
assertion.
"""

from __future__ import annotations

import ctypes
import random
import sys
import threading
import warnings
from collections.abc import Callable
from ctypes import c_int32, c_uint32, c_uint64, c_void_p

import umfpy
from tests.fakes.provider import FakeProvider
from umfpy import Capability, Growth, HostProvider, OutOfMemoryError, Pool, ProxyPool
from umfpy.core.extents import LEAVING, SAFE
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
MIB = 1 << 20
STEPS = 30_000
GROWTH = Growth(minimum=64 * KIB, maximum=1 * MIB)


class Work(ctypes.Structure):
    """``struct work`` of stress.c."""

    _fields_ = [
        ("functions", c_void_p),
        ("seed", c_uint64),
        ("steps", c_uint64),
        ("largest", c_uint64),
        ("slots", c_uint32),
        ("streams", c_uint32),
        ("device", c_int32),
        ("touch", c_uint32),
        ("refusals", c_uint64),
        ("spoilt", c_uint64),
    ]


def work_on(pool: ProviderPool, **settings: int) -> Work:
    interface = pool.c_interface()
    interface.serve(settings.get("device", 0))
    given = {"seed": 1, "steps": STEPS, "largest": 8 * KIB, "slots": 64, **settings}
    return Work(functions=interface.param, **given)


class Driver:
    """The C threads, and Python beside them."""

    def __init__(self, path: str) -> None:
        self._run = ctypes.CDLL(path).stress_run
        self._run.argtypes = [ctypes.POINTER(Work)]

    def run(self, work: Work, meanwhile: Callable[[random.Random], object]) -> None:
        """Call `meanwhile` again and again until the C threads are done."""
        finished = threading.Event()
        answers: list[int] = []

        def in_c() -> None:
            answers.append(self._run(work))
            finished.set()

        thread = threading.Thread(target=in_c)
        thread.start()
        chance = random.Random(work.seed)
        try:
            while not finished.is_set():
                meanwhile(chance)
        finally:
            thread.join()
        assert answers == [0], "the threads could not be started"
        assert work.spoilt == 0, "two callers had the same memory"


def use(pool: ProviderPool) -> Callable[[random.Random], None]:
    """Every call of a pool that a Python program makes."""
    held: list[umfpy.Allocation] = []

    def allocate(chance: random.Random) -> None:
        size = chance.randrange(16 * KIB)
        try:
            held.append(pool.allocate(size, chance.choice((0, 4096)), chance.randrange(3)))
        except OutOfMemoryError:
            held.clear()

    def look(chance: random.Random) -> None:
        for allocation in held[:5]:
            inside = allocation.ptr + allocation.size // 2
            info = umfpy.find(inside)
            assert info is None or info.base <= inside
        pool.map.blocks()

    def resize(chance: random.Random) -> None:
        if held:
            chance.choice(held).resize(chance.randrange(16 * KIB))

    def set_apart(chance: random.Random) -> None:
        for start, size in pool.map.free_ranges(SAFE, 4 * KIB)[:3]:
            if pool.map.retag(start, size, SAFE, LEAVING):
                assert pool.map.retag(start, size, LEAVING, SAFE), "what is set apart stays"

    def swap(chance: random.Random) -> None:
        ptr = pool.malloc(chance.randrange(1, 1000))
        pool.free(ptr)

    calls = (
        *(allocate,) * 12,
        *(lambda chance: held.clear(), look) * 2,
        *(resize, set_apart) * 2,
        lambda chance: pool.check("full"),
        lambda chance: pool.trim(chance.choice((0, 64 * KIB))),
        lambda chance: pool.synchronize(),
        lambda chance: pool.stats(),
    )

    def step(chance: random.Random) -> None:
        try:
            chance.choice((*calls, swap))(chance)
        except OutOfMemoryError:
            held.clear()

    return step


def ends_empty(pool: ProviderPool, interface_refused: int = 0) -> None:
    assert pool.c_interface().refused == interface_refused
    pool.check("full")
    pool.close()
    assert pool.stats().reserved_bytes == 0


def host_memory(driver: Driver) -> None:
    """Real memory, every byte of which is written and read: CuPy's shape."""
    pool = Pool(HostProvider(), growth=GROWTH)
    driver.run(work_on(pool, touch=1, largest=2 * KIB), use(pool))
    ends_empty(pool)


def streams(driver: Driver) -> None:
    """PyTorch's shape: frees on other streams, and recorded ones."""
    pool = Pool(FakeProvider(capabilities=Capability.STREAMS), growth=GROWTH)
    driver.run(work_on(pool, streams=4, device=1), use(pool))
    ends_empty(pool)


def many_streams(driver: Driver) -> None:
    """More streams than there are names for."""
    pool = Pool(FakeProvider(capabilities=Capability.STREAMS), growth=GROWTH)
    driver.run(work_on(pool, streams=6000, steps=STEPS // 3), use(pool))
    pool.check("full")


def growth(driver: Driver) -> None:
    """Every table of the map grows several times under the threads' hands."""
    pool = Pool(FakeProvider(), growth=GROWTH)
    driver.run(work_on(pool, slots=8000, largest=KIB, steps=3 * STEPS), use(pool))
    ends_empty(pool)


def out_of_memory(driver: Driver) -> None:
    """Requests fail now and then, and Python is asked for help every time."""
    pool = Pool(FakeProvider(capacity=256 * KIB), growth=GROWTH)
    work = work_on(pool, slots=100, steps=STEPS // 10)
    driver.run(work, use(pool))
    assert work.refusals
    ends_empty(pool)


def failing_provider(driver: Driver) -> None:
    """The provider's calls fail at random."""
    provider = FakeProvider(capabilities=Capability.STREAMS)
    pool = Pool(provider, growth=GROWTH)

    def disturb(chance: random.Random) -> None:
        provider.fail(chance.randrange(1, 5), OutOfMemoryError("as told"))
        try:
            use(pool)(chance)
        except OutOfMemoryError:
            return

    driver.run(work_on(pool, streams=2, steps=STEPS // 3), disturb)
    provider.recover()
    ends_empty(pool)


def direct(driver: Driver) -> None:
    """A pool that keeps nothing: each call takes the GIL."""
    pool = ProxyPool(FakeProvider(capabilities=Capability.STREAMS))
    driver.run(work_on(pool, streams=2, steps=STEPS // 10), use(pool))
    ends_empty(pool)


def nested(driver: Driver) -> None:
    """A pool in a pool; C uses the outer one, and then the inner one, Python both."""
    outer = Pool(HostProvider(), growth=GROWTH)
    inner = Pool(outer, growth=Growth(minimum=16 * KIB, maximum=64 * KIB))
    for pool, slots in ((outer, 8000), (inner, 100)):
        both = [use(outer), use(inner)]
        driver.run(
            work_on(pool, touch=1, largest=KIB, slots=slots),
            lambda chance, both=both: chance.choice(both)(chance),
        )
        both.clear()
    ends_empty(inner)
    ends_empty(outer)


def other_pools_serve(driver: Driver) -> None:
    """Which pool serves the device changes while C takes and gives back."""
    pools = [Pool(FakeProvider(), growth=GROWTH), Pool(FakeProvider(), growth=GROWTH)]
    works = [work_on(pool, streams=1, device=2, steps=STEPS // 2) for pool in pools]
    driver.run(works[0], lambda chance: chance.choice(pools).c_interface().serve(2))
    for pool in pools:
        ends_empty(pool)


def closing(driver: Driver) -> None:
    """Pools are closed while frees, and requests, go on."""
    closed = 0
    for seed in range(40):
        pool = Pool(FakeProvider(capabilities=Capability.STREAMS), growth=GROWTH)
        work = work_on(pool, streams=2, slots=200, steps=800, seed=seed)
        driver.run(work, lambda chance, pool=pool: chance.randrange(5) or pool.close())
        closed += pool.closed
        if not pool.closed:  # the threads were faster
            pool.close()
        assert not pool.provider.live, "what is freed last gives the rest back"
    assert closed


SCENARIOS = (
    host_memory,
    streams,
    many_streams,
    growth,
    out_of_memory,
    failing_provider,
    direct,
    nested,
    other_pools_serve,
    closing,
)


def main(library: str, *names: str) -> None:
    # How much is live when a pool is closed is up to chance.
    warnings.filterwarnings("ignore", ".*was closed with.*", ResourceWarning)
    driver = Driver(library)
    for scenario in SCENARIOS:
        if not names or scenario.__name__ in names:
            print(f"   {scenario.__name__}: {scenario.__doc__}", file=sys.stderr, flush=True)
            scenario(driver)


if __name__ == "__main__":
    main(*sys.argv[1:])
