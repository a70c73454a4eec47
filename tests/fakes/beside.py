"""Running bodies of a test beside each other."""

from __future__ import annotations

import threading
from collections.abc import Callable

#: Seconds within which every thread is done, on whatever machine.
LONG = 120


def run_all(*bodies: Callable[[], None]) -> None:
    """Run each in a thread of its own, and raise what the first of them raised."""
    failures: list[BaseException] = []
    start = threading.Barrier(len(bodies))

    def guarded(body: Callable[[], None]) -> None:
        start.wait()
        try:
            body()
        except BaseException as error:  # noqa: BLE001 - raised below, in the test's thread
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(body,), daemon=True) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG)
    assert not any(thread.is_alive() for thread in threads), "a thread waits for ever"
    if failures:
        raise failures[0]
