"""Checks that any call of a pool may come from any thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from functools import partial

from umfpy.errors import OutOfMemoryError, UmfpyError
from umfpy.testing.pool_registry import pool_check
from umfpy.testing.pool_subject import PoolSubject
from umfpy.testing.subject import expect
from umfpy.testing.threads import in_thread

_STEPS = 60


class _Ledger:
    """Who has which addresses now, and what went wrong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken: dict[int, int] = {}
        self.trouble: list[str] = []

    def enter(self, ptr: int, size: int) -> None:
        with self._lock:
            for other, length in self._taken.items():
                if other < ptr + size and ptr < other + length:
                    self.trouble.append(f"{size} bytes at {ptr:#x} overlap {length} at {other:#x}")
            self._taken[ptr] = size

    def leave(self, ptr: int) -> int:
        with self._lock:
            return self._taken.pop(ptr)


@pool_check("many threads ask for random sizes and alignments, and nobody gets another's memory")
def pool_threads(subject: PoolSubject) -> None:
    pool, ledger = subject.pool, _Ledger()
    start = threading.Barrier(subject.options.threads)

    def step(chance: random.Random, held: list[int]) -> None:
        if held and chance.random() < 0.5:
            ptr = held.pop(chance.randrange(len(held)))
            pool.free(ptr, ledger.leave(ptr))
            return
        size, alignment = chance.randrange(1, 20_000), 1 << chance.randrange(13)
        try:
            ptr = pool.malloc(size, alignment)
        except OutOfMemoryError:
            return
        ledger.enter(ptr, size)
        held.append(ptr)
        if ptr % alignment:
            ledger.trouble.append(f"{ptr:#x} is not aligned to {alignment}")

    def work(seed: int) -> None:
        chance, held = random.Random(seed), list[int]()
        start.wait()
        try:
            for _ in range(_STEPS):
                step(chance, held)
            for ptr in held:
                pool.free(ptr, ledger.leave(ptr))
        except (UmfpyError, LookupError, RuntimeError, ValueError, TypeError) as error:
            ledger.trouble.append(f"{type(error).__name__}: {error}")

    _run([partial(work, seed) for seed in range(subject.options.threads)])
    expect(not ledger.trouble, "no error, no overlap, every alignment kept", ledger.trouble[:1])
    live = subject.pool.stats().live_allocations
    expect(live == 0, "0 live allocations after every thread freed its own", live)
    pool.check("full")


def _run(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pool_check("memory is freed in another thread than it was allocated in")
def pool_free_in_other_thread(subject: PoolSubject) -> None:
    here, owned = subject.alloc(subject.unit), subject.allocate(subject.unit)
    in_thread(lambda: subject.free(here))
    in_thread(owned.free)
    there = in_thread(lambda: subject.alloc(subject.unit))
    assert isinstance(there, int)
    subject.free(there)
    live = subject.pool.stats().live_allocations
    expect(live == 0, "0 live allocations", live)
