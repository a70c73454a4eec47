"""The context that the providers of a process share."""

from __future__ import annotations

import threading

from umfpy import LevelZeroProvider
from umfpy.providers.emulated import EmulatedLevelZero
from umfpy.providers.level_zero import context as contexts


def test_a_provider_that_is_dropped_while_its_thread_is_at_the_table(
    emu: EmulatedLevelZero,
) -> None:
    """As the garbage collector does, which runs at any allocation: it must not wait for itself."""
    provider = LevelZeroProvider()
    made = emu.leaks()
    done = threading.Event()

    def collect() -> None:
        with contexts._lock, contexts._at_the_table():
            provider.close()
            assert emu.leaks() == made  # not now
        done.set()

    thread = threading.Thread(target=collect, daemon=True)
    thread.start()
    assert done.wait(20), "it waits for a lock that its own thread has"
    thread.join()
    assert emu.leaks() == {}
