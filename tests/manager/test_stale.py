"""Millions of operations in several threads: no handle ever leads to somebody else's bytes."""

from __future__ import annotations

import gc
import itertools
import random
import threading
from collections.abc import Callable
from typing import NamedTuple

import pytest

from tests.manager.support import pattern, read, write
from umfpy import Handle, HostProvider, MemoryManager, StaleHandle
from umfpy.manager import Binding

THREADS = 4
STEPS = 130_000  # a thread; each step is a reserve and a release, with what lies between
SLOTS = 61  # live at once, a thread
SAMPLE = 16  # every so many slices are filled to the end, the others at their start alone
HEAD = 32  # bytes

Kept = Handle | Binding


class Live(NamedTuple):
    """What a slot holds: where it is found, its size, and what was written there."""

    kept: Kept
    size: int
    written: bytes


class Worker:
    """A user of a manager: what it holds it has written, and nobody else may have changed."""

    def __init__(self, manager: MemoryManager, foreign: Handle, number: int) -> None:
        self.manager = manager
        self.number = number
        self.operations = 0
        self.refusals = 0
        # In another thread's hands for the whole time: stale from the beginning.
        self.stale = [foreign, Handle()] * 32
        numbers = random.Random(number)
        sizes = (0, 1, 31, 32, 33, 500, 2000, *(numbers.randrange(9000) for _ in range(9)))
        self.plan = [
            (numbers.choice(sizes), numbers.randrange(SLOTS), numbers.choice(WAYS))
            for _ in range(8191)
        ]

    def run(self, steps: int) -> None:
        live: list[Live | None] = [None] * SLOTS
        plan = itertools.cycle(self.plan)
        for step in range(steps):
            size, slot, way = next(plan)
            before = live[slot]
            if before is not None:
                self.drop(before)
            live[slot] = self.take(step, size, way)
            if step % 4 == 0:
                self.ask_stale(step)
        for one in live:
            if one is not None:
                self.drop(one)
        self.operations += 2 * steps

    def take(self, step: int, size: int, way: Way | None) -> Live:
        handle = self.manager.reserve(size)
        length = size if step % SAMPLE == 0 else min(size, HEAD)
        written = pattern(self.number * 1_000_003 + step, length)
        write(self.manager.storage(handle).ptr, written)
        if way is None:
            return Live(handle, size, written)
        kept = way(self.manager, handle)
        self.stale[step % 61] = handle  # the last places stay uninitialised and foreign
        self.operations += 1
        return Live(kept, size, written)

    def drop(self, one: Live) -> None:
        found = self.manager.storage(one.kept)
        assert found.size == one.size
        assert read(found.ptr, len(one.written)) == one.written, "somebody else wrote here"
        one.kept.release()

    def ask_stale(self, step: int) -> None:
        handle = self.stale[step // 4 % 64]
        try:
            self.manager.storage(handle)
        except StaleHandle:
            self.refusals += 1
            return
        raise AssertionError("a stale handle leads to memory")


def bind(manager: MemoryManager, handle: Handle) -> Kept:
    assigned = Handle()
    manager.bind(handle, assigned, 1)
    return assigned


def clone(manager: MemoryManager, handle: Handle) -> Kept:
    other = handle.clone()
    handle.release()
    return other


def turn_into_binding(manager: MemoryManager, handle: Handle) -> Kept:
    return handle.binding()


Way = Callable[[MemoryManager, Handle], Kept]
WAYS: tuple[Way | None, ...] = (None, None, bind, clone, turn_into_binding)


def run_all(workers: list[Worker], steps: int, meanwhile: Callable[[int], object]) -> None:
    """Run the workers in threads, and something else in this one until all are done."""
    errors: list[BaseException] = []

    def work(worker: Worker) -> None:
        try:
            worker.run(steps)
        except BaseException as error:  # noqa: BLE001  (a thread has nobody else to tell)
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in workers]
    for thread in threads:
        thread.start()
    turn = itertools.count()
    for thread in threads:
        while thread.is_alive():
            thread.join(0.05)
            meanwhile(next(turn))
    assert not errors, errors


@pytest.mark.parametrize("preset", ["sub_slices", "exclusive_pages"])
def test_no_handle_ever_leads_to_somebody_elses_bytes(preset: str) -> None:
    manager = MemoryManager(
        HostProvider(), preset, {"max_page_size": "64MiB", "alignment": 32}, persistent="size-match"
    )
    other = MemoryManager(HostProvider(), preset)
    foreign = other.reserve(100)
    workers = [Worker(manager, foreign, number) for number in range(THREADS)]
    run_all(workers, STEPS, lambda turn: manager.cleanup(explicit=turn % 2 == 0))
    assert sum(worker.operations for worker in workers) > 1_000_000
    assert sum(worker.refusals for worker in workers) == THREADS * STEPS // 4
    del workers
    gc.collect()
    assert manager.memory_usage().number_allocs == 0
    manager.check("full")
    manager.close()
    foreign.release()
    other.close()


def test_the_worker_would_notice() -> None:
    with MemoryManager(HostProvider(), "sub_slices") as manager, manager.reserve(10) as foreign:
        worker = Worker(manager, foreign, 1)
        first = worker.take(1, 500, None)
        write(manager.storage(first.kept).ptr + 7, b"?")
        with pytest.raises(AssertionError, match="somebody else wrote here"):
            worker.drop(first)
        worker.stale[0] = first.kept
        with pytest.raises(AssertionError, match="leads to memory"):
            worker.ask_stale(0)
        first.kept.release()
        worker.ask_stale(0)
