"""Memory that was not needed for a while goes down by itself: when, how far, and how much."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator

import pytest

from tests.fakes.beside import LONG, run_all
from tests.fakes.laddered import RUNGS as EVERY_RUNG
from tests.fakes.laddered import LadderedProvider, agree
from tests.fakes.provider import FakeFailure
from umfpy import Capability, DriverError, Growth, Idle, InvalidArgument, Pool, ProxyPool
from umfpy.pools.idle import IdleWatch, look

KIB = 1 << 10
GROWTH = Growth(256 * KIB, 256 * KIB)


class Clock:
    """Time that passes when it is told to."""

    now = 1000.0
    asked: Callable[[], object] | None = None  #: Called whenever somebody looks at it.

    def __call__(self) -> float:
        if self.asked is not None:
            self.asked()
        return self.now


class LookingPool(Pool):
    """A pool that looks whenever it may have to ask its provider, and follows a clock of ours."""

    def __init__(self, provider: LadderedProvider, policy: Idle) -> None:
        super().__init__(provider, growth=GROWTH)
        self.clock = Clock()
        self._follow(policy, self.clock)

    def _obtain(self, size: int, alignment: int, stream: int, index: bool) -> int:
        self._idle_tick()
        return super()._obtain(size, alignment, stream, index)


@pytest.fixture
def provider() -> LadderedProvider:
    return LadderedProvider(Capability.SPLIT | EVERY_RUNG)


@pytest.fixture
def make(provider: LadderedProvider) -> Iterator[Callable[..., LookingPool]]:
    """Makes pools that follow a policy; all that they have goes back in the end."""
    made: list[LookingPool] = []

    def make(**policy: object) -> LookingPool:
        made.append(LookingPool(provider, Idle(**policy)))
        return made[-1]

    yield make
    for pool in made:
        agree(pool, provider)
        for start, _, used, _ in pool.map.blocks():
            if used:
                pool.free(start)
        pool.close()
    assert not provider.live


def use(pool: Pool, size: int) -> None:
    """Let the pool's use reach `size` bytes for a moment."""
    pool.free(pool.malloc(size))


def went(pool: Pool) -> list[tuple[int, str | None]]:
    return [(int(trimmed), trimmed.rung) for trimmed in pool.sweep()]


# What is idle.


def test_what_was_not_used_goes_down_the_first_rung(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",))
    use(pool, 256 * KIB)
    assert went(pool) == [], "all of it was used in the interval"
    use(pool, 64 * KIB)
    assert went(pool) == [(192 * KIB, "decommit")]
    assert pool.stats().reserved_bytes == 64 * KIB


def test_what_is_idle_for_longer_goes_further_down(make: Callable[..., LookingPool]) -> None:
    """The second rung takes what neither of the last two intervals used."""
    pool = make(rungs=("purge_lazy", "decommit"))
    use(pool, 256 * KIB)
    assert went(pool) == []
    use(pool, 128 * KIB)
    assert went(pool) == [(128 * KIB, "purge_lazy")], "the interval before used all of it"
    use(pool, 32 * KIB)
    assert went(pool) == [(128 * KIB, "decommit"), (96 * KIB, "purge_lazy")]
    use(pool, 64 * KIB)
    assert went(pool) == [(64 * KIB, "decommit")]
    assert pool.stats().reserved_bytes == 64 * KIB


def test_the_most_that_was_used_at_any_time_counts(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",))
    use(pool, 256 * KIB)
    pool.sweep()
    live = pool.malloc(32 * KIB)
    use(pool, 96 * KIB)
    assert went(pool) == [(128 * KIB, "decommit")], "32 and 96 KiB at a time"
    pool.free(live)
    assert went(pool) == [(96 * KIB, "decommit")], "32 KiB were in use when it began"


def test_a_pool_that_uses_all_it_has_keeps_it(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("purge_lazy", "decommit", "free"))
    for _ in range(5):
        use(pool, 200 * KIB)
        use(pool, 256 * KIB)
        assert went(pool) == []


def test_where_nothing_happens_nothing_is_done_again(
    make: Callable[..., LookingPool], provider: LadderedProvider
) -> None:
    """Memory that was purged is not purged every interval."""
    pool = make(rungs=("purge_lazy",))
    use(pool, 256 * KIB)
    pool.sweep()
    assert went(pool) == [(256 * KIB, "purge_lazy")]
    assert went(pool) == []
    assert provider.counts["purge_lazy"] == 1
    use(pool, 4 * KIB)
    assert went(pool) == [(252 * KIB, "purge_lazy")]


@pytest.mark.parametrize("rung", ["purge_lazy", "decommit"])
def test_an_allocation_that_grew_and_shrank_is_something(
    make: Callable[..., LookingPool], rung: str
) -> None:
    """What it had for a while goes down again, like what others had."""
    pool = make(rungs=(rung,))
    with pool.allocate(64 * KIB) as one:
        use(pool, 192 * KIB)
        pool.sweep()
        assert went(pool) == [(192 * KIB, rung)]
        for size in (256 * KIB, 64 * KIB):
            assert one.resize(size)
        assert went(pool) == [], "it was used in the interval"
        assert went(pool) == [(192 * KIB, rung)]
        assert went(pool) == []


def test_a_rung_that_the_provider_lacks_is_replaced(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("purge_lazy",))
    pool.provider.capabilities &= ~Capability.PURGE_LAZY
    use(pool, 256 * KIB)
    pool.sweep()
    assert went(pool) == [(256 * KIB, "decommit")]


# When it is looked at.


def test_an_interval_of_operations(make: Callable[..., LookingPool]) -> None:
    """Allocations and frees; it is looked at when memory has to be got."""
    pool = make(rungs=("decommit",), after_operations=6)
    use(pool, 256 * KIB)
    for _ in range(2):
        use(pool, 16 * KIB)
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 0, "the interval that has ended used it"
    for _ in range(2):
        use(pool, 16 * KIB)
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 0, "four operations are no interval"
    use(pool, 16 * KIB)
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 240 * KIB


def test_an_interval_of_time(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",), after_seconds=10)
    use(pool, 256 * KIB)
    pool.clock.now += 10
    pool._idle_tick()
    pool.clock.now += 9.5
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 0
    pool.clock.now += 0.5
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 256 * KIB


def test_a_request_that_needs_memory_looks(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",), after_seconds=10)
    use(pool, 256 * KIB)
    pool.sweep()
    pool.clock.now += 10
    pool.malloc(512 * KIB)
    assert pool.stats().hidden_bytes == 0
    assert pool.provider.counts["decommit"] == 1


def test_without_intervals_only_a_sweep_ends_one(make: Callable[..., LookingPool]) -> None:
    pool = make()
    use(pool, 256 * KIB)
    for _ in range(1000):
        use(pool, KIB)
    pool.clock.now += 1e9
    pool._idle_tick()
    assert not pool.provider.counts["purge_lazy"]
    pool.sweep()
    assert went(pool) == [(256 * KIB, "purge_lazy")]


def test_a_pool_without_a_policy_says_so(provider: LadderedProvider) -> None:
    pool = ProxyPool(provider, name="plain")
    pool._idle_tick()
    with pytest.raises(InvalidArgument, match=r"'plain'.*idle="):
        pool.sweep()


def test_a_failure_is_told_by_sweep_and_kept_from_requests(
    make: Callable[..., LookingPool], provider: LadderedProvider
) -> None:
    pool = make(rungs=("decommit",), after_seconds=10)
    use(pool, 256 * KIB)
    pool.sweep()
    provider.fail(1, DriverError("decommit", 999))
    pool.clock.now += 10
    pool._idle_tick()
    assert pool.stats().unbacked_bytes == 0
    provider.fail(1)
    with pytest.raises(FakeFailure):
        pool.sweep()
    assert went(pool) == [(256 * KIB, "decommit")], "it is tried again"


# Several threads.


def test_one_thread_ends_an_interval(make: Callable[..., LookingPool]) -> None:
    """Who looks meanwhile has nothing to do: the next interval has only begun."""
    pool = make(rungs=("purge_lazy", "decommit"), after_seconds=10)
    use(pool, 256 * KIB)
    pool.sweep()
    pool.clock.now += 10
    asked = []
    first = threading.current_thread()

    def look_meanwhile() -> None:
        if threading.current_thread() is first:
            asked.append(threading.Thread(target=pool._idle_tick, daemon=True))
            asked[-1].start()
            asked[-1].join(LONG)
            assert not asked[-1].is_alive(), "it waits for ever"

    pool.clock.asked = look_meanwhile
    pool._idle_tick()
    assert len(asked) == 2, "to see that the interval is over, and to begin the next"
    assert pool.provider.counts["purge_lazy"] == 1
    assert pool.stats().unbacked_bytes == 0, "the interval before had used it"


def test_intervals_that_several_threads_end(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("dalloc", "purge_lazy", "decommit"), after_operations=1)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def work() -> None:
        for _ in range(300):
            use(pool, 16 * KIB)
            pool.sweep()
            pool._idle_tick()

    try:
        run_all(*[work] * 4)
    finally:
        sys.setswitchinterval(before)
    assert pool.stats().peak_used_bytes >= 16 * KIB


def test_an_interval_may_end_while_one_is_ending(make: Callable[..., LookingPool]) -> None:
    """What the garbage collector runs may come by in the middle."""
    pool = make(rungs=("purge_lazy", "decommit"), after_seconds=10)
    use(pool, 256 * KIB)
    pool.sweep()
    inner: list[list[tuple[int, str | None]]] = []

    def while_it_ends() -> None:
        if not inner:
            inner.append([])
            inner[0] += went(pool)
            pool.reset_peaks()

    pool.clock.asked = while_it_ends
    outer = went(pool)
    assert (inner, outer) == ([[(256 * KIB, "purge_lazy")]], [(256 * KIB, "decommit")])


# Peaks.


def test_intervals_leave_the_peaks_of_the_statistics_alone(
    make: Callable[..., LookingPool],
) -> None:
    pool = make(rungs=("decommit",))
    use(pool, 256 * KIB)
    for _ in range(3):
        pool.sweep()
        use(pool, 10 * KIB)
    now = pool.stats()
    assert (now.peak_used_bytes, now.peak_requested_bytes) == (256 * KIB, 256 * KIB)
    assert now.peak_reserved_bytes == 256 * KIB
    assert now.reserved_bytes < 256 * KIB


def test_resetting_the_peaks_leaves_the_interval_alone(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",))
    use(pool, 256 * KIB)
    pool.sweep()
    use(pool, 128 * KIB)
    live = pool.malloc(16 * KIB)
    pool.reset_peaks()
    assert pool.stats().peak_used_bytes == 16 * KIB
    assert went(pool) == [(128 * KIB, "decommit")], "128 KiB were used in it"
    pool.free(live)
    assert pool.stats().peak_used_bytes == 16 * KIB


# The thread.


class Waits:
    """An event whose waits end as told; it notes how long each would have been."""

    def __init__(self, *answers: bool | Callable[[], bool]) -> None:
        self._answers = list(answers)
        self.timeouts: list[float] = []

    def wait(self, timeout: float) -> bool:
        self.timeouts.append(timeout)
        answer = self._answers.pop(0)
        return answer() if callable(answer) else answer


def test_the_thread_looks_when_an_interval_is_over(make: Callable[..., LookingPool]) -> None:
    pool = make(rungs=("decommit",), after_seconds=10)
    use(pool, 256 * KIB)

    def pass_time(seconds: float) -> Callable[[], bool]:
        def wait() -> bool:
            pool.clock.now += seconds
            return False

        return wait

    waits = Waits(pass_time(10), pass_time(4), pass_time(6), True)
    look(lambda: pool, pool._idle_watch, waits)

    assert waits.timeouts == [10, 10, 6, 10]
    assert pool.stats().unbacked_bytes == 256 * KIB


def test_the_thread_ends_with_its_pool(make: Callable[..., LookingPool]) -> None:
    watch = make(after_seconds=10)._idle_watch

    look(lambda: None, watch, Waits(False))  # a second wait would have no answer


@pytest.mark.parametrize("end", ["close", "drop", "drop in a cycle"])
def test_a_real_thread_looks_and_ends(provider: LadderedProvider, end: str) -> None:
    """One thread a pool, which keeps no pool alive."""
    looked = threading.Event()
    provider.decommit = lambda ptr, size: (
        LadderedProvider.decommit(provider, ptr, size) or looked.set()
    )
    pool = Pool(provider, growth=GROWTH)
    before = threading.active_count()
    pool._follow(Idle(rungs=("decommit",), after_seconds=0.001, thread=True))
    assert threading.active_count() == before + 1
    use(pool, 256 * KIB)

    assert looked.wait(60)
    thread = pool._idle_thread
    del provider.decommit
    if end == "close":
        pool.close()
        assert thread.join(60)
    gone = weakref.ref(pool)
    if end == "drop in a cycle":
        pool.on_out_of_memory(lambda size, pool=pool: False)
    del pool
    gc.collect()

    assert thread.join(60)
    assert gone() is None
    assert not provider.live


def test_a_forked_child_has_no_thread_and_no_hurry(provider: LadderedProvider) -> None:
    pool = Pool(provider, growth=GROWTH)
    pool._follow(Idle(after_seconds=3600, thread=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside a thread: that is it
        child = os.fork()
    if not child:
        status = 1
        try:
            pool._idle_tick()
            pool.close()
            status = 0 if pool._idle_thread.join(0) and pool.sweep() == [] else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.close()
    assert pool._idle_thread.join(60)


def test_a_forked_child_waits_for_no_thread_of_its_parent(provider: LadderedProvider) -> None:
    pool = Pool(provider, growth=GROWTH)
    pool._follow(Idle())
    held, let_go = threading.Event(), threading.Event()

    def end_an_interval() -> None:
        with pool._idle_watch._lock, pool._idle_watch.peaks._lock:
            held.set()
            assert let_go.wait(LONG)

    thread = threading.Thread(target=end_an_interval)
    thread.start()
    assert held.wait(LONG)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        status = 1
        try:
            signal.alarm(LONG)
            pool.reset_peaks()
            status = 0 if pool.sweep() == [] else 2
        finally:
            os._exit(status)
    let_go.set()
    thread.join(LONG)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    pool.close()


# The policy.


def test_the_defaults() -> None:
    policy = Idle()
    assert policy.rungs == ("purge_lazy", "decommit")
    assert (policy.after_operations, policy.after_seconds, policy.thread) == (None, None, False)
    assert pickle.loads(pickle.dumps(policy)) == policy
    assert Idle(rungs=["decommit"]) == Idle(rungs=("decommit",)) == Idle(rungs="decommit")


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rungs": ()}, r"at least one.*not \(\)"),
        ({"rungs": ("decommit", "purge_lazy")}, "more aggressive"),
        ({"rungs": ("decommit", "decommit")}, "more aggressive"),
        ({"rungs": ("swap",)}, "'swap'"),
        ({"rungs": (1,)}, "not 1"),
        ({"after_operations": 0}, "after_operations.*not 0"),
        ({"after_operations": 2.5}, "not 2.5"),
        ({"after_operations": True}, "not True"),
        ({"after_seconds": 0}, "after_seconds.*not 0"),
        ({"after_seconds": -1.0}, "not -1.0"),
        ({"after_seconds": float("inf")}, "not inf"),
        ({"after_seconds": float("nan")}, "not nan"),
        ({"after_seconds": "1s"}, "not '1s'"),
        ({"after_seconds": 1e300, "thread": True}, "not 1e+300".replace("+", r"\+")),
        ({"thread": True}, "after_seconds"),
        ({"thread": True, "after_operations": 5}, "after_seconds"),
    ],
)
def test_what_is_no_policy(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        Idle(**wrong)


def test_what_is_left_of_an_interval(make: Callable[..., LookingPool]) -> None:
    pool = make(after_seconds=10)
    watch: IdleWatch = pool._idle_watch
    assert watch.remaining() == 10
    pool.clock.now += 25
    assert watch.remaining() == 0
    pool.sweep()
    assert watch.remaining() == 10


def test_a_policy_is_given_to_the_pool(provider: LadderedProvider) -> None:
    """The pool looks where it is about to ask for memory."""
    pool = Pool(provider, growth=GROWTH, idle=Idle(rungs=("decommit",), after_operations=2))
    use(pool, 256 * KIB)
    for _ in range(2):
        use(pool, 4 * KIB)
    big = pool.malloc(300 * KIB)  # the interval that ends here had used all there was
    pool.free(big)
    use(pool, 4 * KIB)
    pool.malloc(600 * KIB)
    assert provider.counts["decommit"] >= 1
    for start, _, used, _ in pool.map.blocks():
        if used:
            pool.free(start)
    pool.close()
    assert not provider.live


def test_what_is_no_policy_at_all(provider: LadderedProvider) -> None:
    with pytest.raises(InvalidArgument, match="not 5"):
        Pool(provider, idle=5)  # type: ignore[arg-type]
