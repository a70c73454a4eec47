"""Pools and coarse providers on top of a pool over virtual memory, and processes that fork."""

from __future__ import annotations

import gc
import random
from collections.abc import Callable

import pytest

from tests.fakes.programs import assert_silent, run_program
from tests.fakes.stamped import Stamped, elsewhere
from umfpy import (
    CoarseProvider,
    CudaVmmProvider,
    MemoryManager,
    OutOfMemoryError,
    Pool,
    ProxyPool,
    SlabPool,
)
from umfpy.pools.base import ProviderPool
from umfpy.pools.nested import PoolProvider
from umfpy.pools.rungs import RUNGS
from umfpy.providers.emulated import EmulatedCuda

MIB = 1 << 20
UNIT = 2 * MIB

LAYERS: dict[str, Callable[[Pool], ProviderPool]] = {
    "pool": Pool,
    "proxy": ProxyPool,
    "slab": SlabPool,
    "manager": MemoryManager,
    "pool over coarse": lambda pool: Pool(CoarseProvider(PoolProvider(pool))),
    "pool over pool": lambda pool: Pool(Pool(pool)),
}


def end(pool: ProviderPool) -> None:
    pool.close()
    pool.check("full")
    now = pool.stats()
    assert (now.extents, now.reserved_bytes, now.unbacked_bytes) == (0, 0, 0)


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("memory", ["96MiB", "4GiB"])
def test_any_order_in_two_layers(
    emu: EmulatedCuda, provider: CudaVmmProvider, layer: str, memory: str
) -> None:
    """Memory of the lower pool moves while the upper one's stays where it is."""
    emu.set_memory(memory)
    lower = Pool(provider)
    upper = LAYERS[layer](lower)
    both = [Stamped(lower), Stamped(upper, provider)]
    chance = random.Random(layer)
    served = 0
    for _ in range(400):
        stamped = chance.choice(both)
        step = chance.random()
        if step < 0.5:
            size = chance.choice((100, 70_000, MIB, 5 * MIB, 12 * MIB))
            try:
                stamped.allocate(size)
                served += 1
            except OutOfMemoryError:
                lower.check("full")
        elif step < 0.9 and stamped.live:
            stamped.free(chance.choice(list(stamped.live)))
        elif step < 0.95:
            stamped.pool.trim(rung=chance.choice(RUNGS))
        elif stamped.live:
            stamped.resize(chance.choice(list(stamped.live)), chance.randrange(12 * MIB))
    assert served > 100
    for stamped in both[::-1]:
        stamped.check()
        stamped.clear()
    upper.close()
    source = upper.provider
    del upper, both, stamped
    gc.collect()
    if isinstance(source, CoarseProvider):
        source.close()
    elif isinstance(source, PoolProvider) and source.pool is not lower:
        end(source.pool)
    lower.trim()
    end(lower)


def test_what_the_upper_pool_gives_back_moves_in_the_lower_one(provider: CudaVmmProvider) -> None:
    lower = Pool(provider)
    upper = Pool(lower)
    blocks = [upper.allocate(16 * MIB) for _ in range(4)]
    beside = Stamped(lower)
    beside.allocate(100)
    held = lower.stats().reserved_bytes
    aside = elsewhere(*blocks)
    blocks.clear()
    upper.trim()
    lower.trim(rung="dalloc")
    assert lower.stats().hidden_bytes >= 60 * MIB

    beside.allocate(48 * MIB)
    beside.allocate(16 * MIB, aside)

    assert lower.stats().reserved_bytes <= held + UNIT
    beside.check()
    beside.clear()
    upper.close()
    end(lower)


def test_a_coarse_provider_below_is_one_piece_of_memory(provider: CudaVmmProvider) -> None:
    """What cuts up memory by itself hides that it has chunks."""
    coarse = CoarseProvider(provider)
    pool = Pool(coarse)
    assert not pool.virtual
    stamped = Stamped(pool, provider)
    blocks = [stamped.allocate(4 * MIB) for _ in range(4)]
    stamped.free(*blocks[::2])
    stamped.allocate(8 * MIB)
    stamped.check()
    stamped.clear()
    end(pool)
    coarse.close()


def test_a_pool_dropped_with_live_memory(provider: CudaVmmProvider) -> None:
    """The allocation keeps its pool, and the addresses go with the last of it."""
    pool = Pool(provider)
    blocks = [pool.allocate(UNIT) for _ in range(3)]
    del pool
    blocks.pop(1)
    blocks[0].resize(100)
    assert provider.live_count() > 0
    last = blocks.pop()
    blocks.clear()
    del last
    gc.collect()

    assert provider.live_count() == 0


def test_a_forked_child_is_told_and_ends_well() -> None:
    """Whatever was asleep, hidden or half used when it was forked."""
    assert_silent(
        run_program(
            """
            import os, sys, warnings
            import umfpy
            warnings.simplefilter("error")
            umfpy.emulate("cuda", memory="256MiB")
            pool = umfpy.Pool(umfpy.CudaVmmProvider())
            blocks = [pool.allocate(4 << 20) for _ in range(8)]
            del blocks[::2]
            pool.trim(8 << 20, rung="dalloc")
            pool.trim(4 << 20, rung="decommit")
            if os.fork() == 0:
                for call in (
                    lambda: pool.allocate(1), lambda: pool.allocate(64 << 20),
                    lambda: blocks[0].resize(8 << 20), lambda: blocks[0].resize(1),
                    lambda: blocks[0].free(),
                ):
                    try:
                        call()
                    except umfpy.InvalidArgument as error:
                        assert "fork" in str(error), error
                    else:
                        raise SystemExit("the child was not told")
                assert pool.trim() == 0 == pool.trim(rung="decommit")
                pool.synchronize(); pool.stats(); pool.close()
                blocks.clear()
                sys.exit(0)
            _, status = os.wait()
            blocks.append(pool.allocate(16 << 20))
            pool.check("full")
            blocks.clear()
            pool.close()
            print("child", status)
            """
        ),
        "child 0",
    )


def test_a_child_forked_while_memory_moves_is_not_stuck() -> None:
    assert_silent(
        run_program(
            """
            import os, threading
            import umfpy
            umfpy.emulate("cuda", memory="256MiB")
            moving, forked = threading.Event(), threading.Event()
            class Slow(umfpy.CudaVmmProvider):
                def remap(self, *arguments):
                    moving.set(); forked.wait()
                    return super().remap(*arguments)
            pool = umfpy.Pool(Slow())
            blocks = [pool.allocate(4 << 20) for _ in range(4)]
            del blocks[::2]
            thread = threading.Thread(target=lambda: blocks.append(pool.allocate(8 << 20)))
            thread.start(); moving.wait()
            pid = os.fork()
            if pid == 0:
                for call in (lambda: pool.allocate(1), lambda: blocks[0].resize(64 << 20)):
                    try:
                        call()
                    except umfpy.InvalidArgument:
                        pass
                    else:
                        os._exit(1)
                pool.trim(); pool.synchronize(); pool.close()
                os._exit(0)
            print(os.waitpid(pid, 0)[1])
            forked.set(); thread.join()
            blocks.clear()
            pool.close()
            """
        ),
        "0",
    )
