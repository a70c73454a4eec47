"""Checks that any call may come from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from umfpy.errors import UmfpyError
from umfpy.testing.registry import check
from umfpy.testing.subject import Broken, Skipped, Subject, expect


def in_thread(function: Callable[[], object]) -> object:
    """Return what `function` returns in a thread of its own; what it raises is raised here."""
    results: list[object] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(function())
        except (UmfpyError, Broken, RuntimeError, LookupError, TypeError, ValueError) as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@check("many threads allocate at once, and nobody gets somebody else's memory")
def concurrent_alloc_free(subject: Subject) -> None:
    provider, unit = subject.provider, subject.unit
    lock = threading.Lock()
    taken: dict[int, int] = {}
    trouble: list[str] = []
    start = threading.Barrier(subject.options.threads)

    def enter(ptr: int, size: int) -> None:
        with lock:
            for other, length in taken.items():
                if other < ptr + size and ptr < other + length:
                    trouble.append(f"{size} bytes at {ptr:#x} overlap {length} at {other:#x}")
            taken[ptr] = size

    def work() -> None:
        start.wait()
        for step in range(12):
            size = unit * (1 + step % 2)
            try:
                ptr = provider.alloc(size)
                enter(ptr, size)
                with lock:
                    del taken[ptr]
                provider.free(ptr, size)
            except (UmfpyError, LookupError, RuntimeError, ValueError, TypeError) as error:
                trouble.append(f"{type(error).__name__}: {error}")
                return

    threads = [threading.Thread(target=work) for _ in range(subject.options.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expect(not trouble, "no error and no overlap", trouble[:1])


@check("memory is freed in another thread than it was allocated in")
def free_in_other_thread(subject: Subject) -> None:
    here = subject.alloc(subject.unit)
    in_thread(lambda: subject.free(here))
    there = in_thread(lambda: subject.alloc(subject.unit))
    assert isinstance(there, int)
    subject.free(there)


@check("native_error is each thread's own")
def native_error_per_thread(subject: Subject) -> None:
    provider = subject.provider

    def fail() -> object:
        for size in (1 << 46, 1 << 50, 1 << 62):
            try:
                subject.alloc(size)
            except UmfpyError:
                if provider.native_error() is not None:
                    break
        return provider.native_error()

    before = provider.native_error()
    there = in_thread(fail)
    if there is None:
        raise Skipped("no request that can be tried here fails in the driver")
    after = provider.native_error()
    expect(after == before, f"this thread's native_error() still {before!r}", repr(after))
