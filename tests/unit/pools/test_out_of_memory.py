"""What a pool does before it says that there is no memory."""

from __future__ import annotations

import pickle
import threading

import pytest

from tests.fakes.exhaust import until_exhausted
from tests.fakes.provider import FakeProvider
from umfpy import CoarseProvider, Growth, InvalidArgument, OutOfMemoryError, Pool

KIB = 1 << 10
MIB = 1 << 20


def test_free_extents_go_back_first() -> None:
    pool = Pool(FakeProvider(capacity=4 * MIB), growth=Growth(MIB, MIB))
    for ptr in [pool.malloc(MIB) for _ in range(4)]:
        pool.free(ptr)

    whole = pool.malloc(4 * MIB)

    assert pool.stats().reserved_bytes == 4 * MIB
    pool.free(whole)


def test_neighbours_on_the_device_are_asked() -> None:
    # given
    provider = FakeProvider(capacity=4 * MIB)
    idle, busy = Pool(provider), Pool(provider)
    idle.free(idle.malloc(3 * MIB))
    assert provider.live

    # when
    ptr = busy.malloc(4 * MIB)

    # then
    assert idle.stats().reserved_bytes == 0
    busy.free(ptr)


def test_pools_of_other_devices_are_not_asked() -> None:
    other = Pool(FakeProvider(device=1))
    other.free(other.malloc(MIB))
    pool = Pool(FakeProvider(capacity=MIB))

    with pytest.raises(OutOfMemoryError):
        pool.malloc(2 * MIB)
    assert other.stats().reserved_bytes > 0


def test_pools_of_another_driver_are_not_asked() -> None:
    # given a pool whose device has the same number, of another driver
    class OtherProvider(FakeProvider):
        name = "other"

    other = Pool(CoarseProvider(OtherProvider()))
    other.free(other.malloc(MIB))
    pool = Pool(FakeProvider(capacity=4 * MIB))
    kept = pool.malloc(3 * MIB)

    # when
    with pytest.raises(OutOfMemoryError):
        pool.malloc(2 * MIB)

    # then
    assert other.stats().reserved_bytes > 0
    pool.free(kept)


def test_pools_over_layers_of_one_driver_are_asked() -> None:
    provider = FakeProvider(capacity=4 * MIB)
    idle = Pool(CoarseProvider(provider))
    idle.free(idle.malloc(3 * MIB))
    pool = Pool(provider)

    with pytest.raises(OutOfMemoryError):
        # The coarse provider keeps what its pool gave back: that is its business.
        pool.malloc(4 * MIB)

    assert idle.stats().reserved_bytes == 0


def test_a_request_beyond_the_device_costs_nobody_anything() -> None:
    provider = FakeProvider(capacity=4 * MIB)
    idle, pool = Pool(provider), Pool(provider)
    idle.free(idle.malloc(MIB))

    with pytest.raises(OutOfMemoryError):
        pool.malloc(5 * MIB)
    assert idle.stats().reserved_bytes > 0


def test_callbacks_are_asked_and_may_free() -> None:
    # given
    pool = Pool(FakeProvider(capacity=4 * MIB))
    cache = [pool.allocate(MIB) for _ in range(4)]
    asked = []

    def stingy(missing: int) -> bool:
        asked.append(("stingy", missing))
        return False

    def generous(missing: int) -> bool:
        asked.append(("generous", missing))
        cache.pop().free()
        return True

    pool.on_out_of_memory(stingy)
    pool.on_out_of_memory(generous)

    # when
    cache.append(pool.allocate(MIB))

    # then
    assert asked == [("stingy", MIB), ("generous", MIB)]
    for allocation in cache:
        allocation.free()


def test_an_error_of_a_callback_reaches_the_caller() -> None:
    pool = Pool(FakeProvider(capacity=MIB))
    pool.on_out_of_memory(lambda missing: [][missing])
    with pytest.raises(IndexError):
        until_exhausted(lambda: pool.malloc(MIB))
    for start, _, used, _ in pool.map.blocks():
        if used:
            pool.free(start)


def test_a_callback_that_allocates_is_not_asked_again_meanwhile() -> None:
    """There is nothing for it either: it is told so, and may do something else."""
    pool = Pool(FakeProvider(capacity=MIB))
    other = Pool(FakeProvider(capacity=MIB))
    cache = [pool.allocate(MIB), other.allocate(MIB)]
    told: list[int] = []

    def spill(missing: int) -> bool:
        with pytest.raises(OutOfMemoryError) as refusal:
            other.allocate(missing // 2)  # whose callback wants some of ours
        told.append(refusal.value.requested)
        cache.pop(0).free()
        return True

    def pass_on(missing: int) -> bool:
        with pytest.raises(OutOfMemoryError) as refusal:
            pool.allocate(missing // 2)
        told.append(refusal.value.requested)
        return False

    pool.on_out_of_memory(spill)
    other.on_out_of_memory(pass_on)
    for again in range(2):
        cache.append(pool.allocate(MIB))
        assert told == [MIB // 4, MIB // 2] * (again + 1)
        cache.insert(0, cache.pop())
    for allocation in cache:
        allocation.free()


def test_a_callback_that_fails_is_asked_the_next_time() -> None:
    pool = Pool(FakeProvider(capacity=MIB))
    keep = pool.allocate(MIB)
    asked: list[int] = []
    pool.on_out_of_memory(lambda missing: asked.append(missing) or 1 // 0)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            pool.allocate(KIB)
    assert asked == [KIB, KIB]
    keep.free()


def test_the_report_says_what_a_person_can_act_on() -> None:
    pool = Pool(FakeProvider(capacity=2 * MIB), name="mine", limit_bytes="2MiB")
    held, error = until_exhausted(lambda: pool.allocate(300 * KIB))

    assert len(held) == 6
    for word in ("mine", "300.00 KiB", "largest free block", "limit_bytes"):
        assert word in str(error)
    assert (error.requested, error.reserved, error.limit) == (300 * KIB, 2 * MIB, 2 * MIB)
    assert error.used == pool.stats().used_bytes
    copied = pickle.loads(pickle.dumps(error))
    assert (str(copied), vars(copied)) == (str(error), vars(error))
    for allocation in held:
        allocation.free()


def _fight(pools: list[Pool], rounds: int, size: int) -> None:
    """Several threads, each with a pool of its own, run out of memory over and over."""
    errors: list[BaseException] = []
    start = threading.Barrier(len(pools))

    def work(pool: Pool) -> None:
        start.wait()
        try:
            for _ in range(rounds):
                held, _ = until_exhausted(lambda: pool.allocate(size))
                for allocation in held:
                    allocation.free()
        except BaseException as error:
            errors.append(error)
            raise

    threads = [threading.Thread(target=work, args=(pool,), daemon=True) for pool in pools]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads), "deadlock"
    assert not errors
    for pool in pools:
        pool.check("full")


def test_pools_that_run_out_at_once_do_not_wait_for_each_other() -> None:
    provider = FakeProvider(capacity=8 * MIB)
    _fight([Pool(provider) for _ in range(4)], rounds=20, size=MIB)


def test_nested_pools_that_run_out_at_once_do_not_wait_for_each_other() -> None:
    parent = Pool(FakeProvider(capacity=8 * MIB))
    pools = [Pool(parent) for _ in range(4)]
    _fight(pools, rounds=20, size=MIB)
    for pool in pools:
        pool.close()


def test_pools_on_coarse_providers_do_not_wait_for_each_other() -> None:
    parent = Pool(FakeProvider(capacity=8 * MIB))
    coarse = [CoarseProvider(parent) for _ in range(2)]
    pools = [Pool(coarse[i % 2]) for i in range(4)]
    _fight(pools, rounds=20, size=MIB)
    for pool in pools:
        pool.close()
    for one in coarse:
        one.close()


def test_growth_that_makes_no_sense() -> None:
    for arguments in ((0, 1), (2, 1), (1, 1, 0)):
        with pytest.raises(InvalidArgument):
            Growth(*arguments)


def test_what_cannot_be_called_is_no_callback(provider):
    with Pool(provider) as pool, pytest.raises(InvalidArgument, match="5 takes nothing"):
        pool.on_out_of_memory(5)
