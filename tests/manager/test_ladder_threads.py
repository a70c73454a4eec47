"""Memory goes down in some threads while others reserve, write, read and release."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.fakes.beside import run_all
from tests.fakes.laddered import RUNGS as LADDER
from tests.fakes.laddered import LadderedProvider
from tests.fakes.ladders import provider_of, read, write
from tests.manager.ladder import SHAPES, agree, pattern
from tests.manager.support import KIB, MIB, exclusive, sliced
from umfpy import Capability, Handle, MemoryManager, OutOfMemoryError, Provider
from umfpy.pools.rungs import RUNGS

ROUNDS = 40


def use(manager: MemoryManager, provider: Provider, seed: int) -> None:
    """What a thread holds is nobody else's, whatever goes down around it."""
    chance = random.Random(seed)
    held: list[tuple[Handle, int, int]] = []

    def drop(place: int) -> None:
        handle, ptr, size = held.pop(place)
        assert manager.storage(handle).ptr == ptr
        assert read(provider, ptr, size) == pattern(ptr + seed, size)

    for _ in range(ROUNDS):
        size = chance.choice((700, 5 * KIB, 300 * KIB, MIB, 3 * MIB))
        handle = manager.reserve(size)
        ptr = manager.storage(handle).ptr
        write(provider, ptr, pattern(ptr + seed, size))
        held.append((handle, ptr, size))
        if len(held) > 4 or chance.random() < 0.4:
            drop(chance.randrange(len(held)))
    while held:
        drop(0)


@pytest.mark.parametrize("shape", ["sliced", "sliced, uneven", "exclusive", "persistent"])
@pytest.mark.parametrize("kind", ["host private", "host shared", "cuda vmm"])
def test_others_reserve_meanwhile(kind: str, shape: str, tmp_path: Path) -> None:
    with provider_of(kind, tmp_path) as provider:
        manager = SHAPES[shape].manager(provider)

        def trim(seed: int) -> None:
            chance = random.Random(seed)
            for _ in range(ROUNDS):
                manager.trim(chance.choice((0, MIB, 8 * MIB)), rung=chance.choice(RUNGS))

        def ask() -> None:
            for _ in range(ROUNDS):
                usage = manager.memory_usage()
                assert usage.bytes_hidden <= usage.peak_bytes_reserved
                manager.report()
                manager.cleanup()

        bodies = [lambda seed=seed: use(manager, provider, seed) for seed in range(3)]
        run_all(*bodies, lambda: trim(1), lambda: trim(2), ask)

        manager.check("full")
        manager.trim()
        usage = manager.memory_usage()
        assert (usage.number_allocs, usage.bytes_reserved, usage.bytes_unbacked) == (0, 0, 0)
        manager.close()


@pytest.mark.parametrize("streams", [Capability.NONE, Capability.STREAMS])
@pytest.mark.parametrize("split", [Capability.NONE, Capability.SPLIT])
def test_limits_captures_and_layouts_beside_a_trim(split: Capability, streams: Capability) -> None:
    """Everything that takes memory away or brings it back, at once."""
    provider = LadderedProvider(LADDER | split | streams)
    limit = 512 * KIB
    layouts = ([sliced(64 * KIB), exclusive(128 * KIB)], [exclusive(128 * KIB, dealloc_period=20)])
    manager = MemoryManager(
        provider, layouts[0], {"max_page_size": MIB, "alignment": 512}, limit_bytes=limit
    )

    def work(seed: int) -> None:
        chance = random.Random(seed)
        held: list[Handle] = []
        for turn in range(300):
            try:
                held.append(manager.reserve(chance.randrange(60 * KIB), stream=turn % 3))
            except OutOfMemoryError:
                held.clear()
            assert manager.memory_usage().peak_bytes_reserved <= limit
            if len(held) > 3:
                del held[chance.randrange(len(held))]

    def trim() -> None:
        for turn in range(300):
            manager.trim(rung=RUNGS[turn % len(RUNGS)])

    def change() -> None:
        for turn in range(100):
            manager.configure(layouts[turn % 2])
            manager.mode(("auto", "persistent")[turn % 2])

    def capture() -> None:
        for _ in range(50):
            manager.capture_begin()
            try:
                manager.reserve(4 * KIB).release()
            except OutOfMemoryError:
                pass
            finally:
                manager.capture_end().clear()

    run_all(*(lambda seed=seed: work(seed) for seed in range(2)), trim, change, capture)

    agree(manager, provider)
    manager.mode("auto")
    manager.close()
    assert not provider.live
