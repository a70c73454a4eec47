"""The end of allocations, pools and processes."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import Capability, InvalidArgument, Pool, ProxyPool, find

PREAMBLE = """
import gc, os, sys, threading
from umfpy import *
from tests.fakes.provider import FakeProvider
def kind(name):
    return {"pool": Pool, "proxy": ProxyPool, "nested": lambda p: Pool(Pool(p)),
            "coarse": lambda p: ProxyPool(CoarseProvider(p))}[name](
                FakeProvider(capabilities=Capability.STREAMS))
"""


def test_dropping_frees(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    allocation = pool.allocate(100)
    del allocation
    assert pool.stats().live_allocations == 0


def test_leaving_the_block_frees(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    with pool.allocate(100) as allocation:
        assert find(allocation.ptr).pool is pool
    assert allocation.freed


def test_live_allocations_keep_their_pool(provider: FakeProvider) -> None:
    pool = Pool(provider)
    allocation, observer = pool.allocate(100), weakref.ref(pool)
    del pool
    gc.collect()
    assert observer() is allocation.pool
    allocation.free()
    del allocation
    assert observer() is None
    assert not provider.live


def test_a_closed_pool_gives_back_with_the_last_free(kind, provider: FakeProvider) -> None:
    # given
    pool = kind(provider)
    owned, raw = pool.allocate(100), pool.malloc(200)

    # when
    with pytest.warns(ResourceWarning, match="2 live allocations of 300 bytes"):
        pool.close()

    # then
    for call in (pool.allocate, pool.malloc):
        with pytest.raises(InvalidArgument, match="closed"):
            call(1)
    pool.free(raw)
    owned.free()
    assert pool.stats().reserved_bytes == 0
    pool.close()
    pool.trim()


def test_a_pool_dropped_with_raw_memory_warns_and_is_forgotten(provider: FakeProvider) -> None:
    pool = Pool(provider)
    ptr = pool.malloc(100)

    with pytest.warns(ResourceWarning, match="1 live allocations"):
        del pool
    gc.collect()

    assert find(ptr) is None
    again = Pool(provider)
    again.free(again.malloc(100))


def test_garbage_that_holds_allocations_frees_them(kind, provider: FakeProvider) -> None:
    pool = kind(provider)
    for _ in range(100):
        ring: list[object] = [pool.allocate(100)]
        ring.append(ring)
    del ring
    gc.collect()
    assert pool.stats().live_allocations == 0
    pool.check("full")


def test_garbage_is_collected_in_the_midst_of_questions(kind, provider: FakeProvider) -> None:
    # given
    pool = kind(provider)
    thresholds = gc.get_threshold()
    gc.disable()
    for _ in range(100):
        ring: list[object] = [pool.allocate(100)]
        ring.append(ring)
    del ring

    # when
    gc.set_threshold(1)
    gc.enable()
    try:
        for question in (pool.map.blocks, pool.map.free_extents, pool.stats, pool.trim):
            question()
    finally:
        gc.set_threshold(*thresholds)

    # then
    gc.collect()
    pool.check("full")


def test_a_free_that_fails_in_a_destructor_warns(provider: FakeProvider) -> None:
    pool = ProxyPool(provider)
    allocation = pool.allocate(100)
    provider.fail()
    with pytest.warns(ResourceWarning, match="100 bytes at .* not freed: as told"):
        del allocation
    provider.recover()
    (start,) = (start for start, _, used, _ in pool.map.blocks() if used)
    assert find(start) is not None
    with pytest.warns(ResourceWarning, match="1 live"):  # nobody has a handle to it any more
        pool.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_warning_that_is_an_error_keeps_the_error_under_way() -> None:
    # given
    provider = FakeProvider(capabilities=Capability.ZERO)
    pool = ProxyPool(provider)
    provider.fail(2, FakeFailure("no zeros"))
    provider.fail(3, FakeFailure("no free"))

    # when, then
    with pytest.raises(FakeFailure, match="no zeros"):
        pool.allocate(100, zero=True)
    provider.recover()
    with pytest.warns(ResourceWarning, match="1 live"):
        pool.close()


KINDS = ("pool", "proxy", "nested", "coarse")


@pytest.mark.parametrize("name", KINDS)
def test_exit_with_live_allocations_is_silent(name: str) -> None:
    assert_silent(
        run_program(
            PREAMBLE
            + f"""
pool = kind({name!r})
held = [pool.allocate(1000, stream=i % 3) for i in range(50)]
raw = [pool.malloc(100) for _ in range(50)]
ring = [pool.allocate(10)]; ring.append(ring)
pool.on_exit = held[0]
"""
        )
    )


@pytest.mark.parametrize("name", KINDS)
def test_exit_while_threads_allocate_is_silent(name: str) -> None:
    assert_silent(
        run_program(
            PREAMBLE
            + f"""
pool = kind({name!r})
busy = threading.Barrier(5)
def work():
    busy.wait()
    while True:
        held = [pool.allocate(500) for _ in range(20)]
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
busy.wait()
"""
        )
    )


@pytest.mark.parametrize("name", KINDS)
def test_a_forked_child_is_told_and_ends_well(name: str) -> None:
    assert_silent(
        run_program(
            PREAMBLE
            + f"""
import warnings
warnings.simplefilter("error")
pool = kind({name!r})
held, raw = pool.allocate(1000), pool.malloc(1000)
if os.fork() == 0:
    for call in (lambda: pool.allocate(1), lambda: pool.malloc(1), lambda: pool.free(raw),
                 lambda: held.free()):
        try:
            call()
        except InvalidArgument as error:
            assert "fork" in str(error), error
        else:
            raise SystemExit("the child was not told")
    pool.trim(); pool.synchronize(); pool.stats(); pool.close()
    del held
    sys.exit(0)
_, status = os.wait()
pool.free(raw)
held.free()
pool.close()
print("child", status)
"""
        ),
        "child 0",
    )


def test_a_child_forked_while_a_pool_grows_is_not_stuck() -> None:
    assert_silent(
        run_program(
            PREAMBLE
            + """
growing, forked = threading.Event(), threading.Event()
class Slow(FakeProvider):
    def alloc(self, size, alignment=0):
        growing.set(); forked.wait()
        return super().alloc(size, alignment)
pool, coarse = Pool(Slow()), CoarseProvider(Slow())
def work():
    pool.allocate(1)
thread = threading.Thread(target=work)
thread.start(); growing.wait()
pid = os.fork()
if pid == 0:
    for call in (lambda: pool.malloc(1), lambda: coarse.alloc(1)):
        try:
            call()
        except InvalidArgument:
            pass
    pool.trim(); pool.synchronize(); pool.close(); coarse.trim(); coarse.close()
    os._exit(0)
print(os.waitpid(pid, 0)[1])
forked.set(); thread.join()
"""
        ),
        "0",
    )
