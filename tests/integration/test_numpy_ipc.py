"""NumPy writes into pool memory in one process, and reads it in another."""

from __future__ import annotations

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pytest

import umfpy
from umfpy import Allocation, CoarseProvider, FileProvider, HostProvider, IpcMapping, Pool

SHAPE = (32, 17)
MAKE = {
    "host": lambda folder: HostProvider(shared=True),
    "file": lambda folder: FileProvider(folder / "arrays", keep=False),
}


def numbers(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE)


def arrays_of(memory: Allocation | IpcMapping, **options: object) -> list[np.ndarray]:
    """The memory as NumPy gets it by DLPack, by its array interface, and as a buffer."""
    view = umfpy.view(memory, SHAPE, "f8", **options)
    return [np.from_dlpack(view), np.asarray(view), np.asarray(view.as_buffer())]


# What the second process does.


def read_and_answer(pipe: Connection) -> None:
    """Say which numbers arrive each time, and leave others, until None comes."""
    while (memory := pipe.recv()) is not None:
        assert isinstance(memory, IpcMapping)
        arrays = arrays_of(memory)
        del memory  # the arrays keep the mapping open
        gc.collect()
        pipe.send([array.copy() for array in arrays])
        arrays[0][...] = numbers(2)
        pipe.send(all((array == numbers(2)).all() for array in arrays))
        del arrays
        gc.collect()
        pipe.send(umfpy.ipc.cache_info().used)


def write(pipe: Connection, kind: str, folder: Path) -> None:
    """Write numbers into memory of a pool of this process, and share it."""
    pool = Pool(MAKE[kind](folder))
    memory = pool.allocate(8 * SHAPE[0] * SHAPE[1])
    arrays_of(memory)[0][...] = numbers(3)
    pipe.send(memory)
    pipe.recv()
    pipe.send(arrays_of(memory)[0].copy())


# This one.


@pytest.fixture
def start() -> Iterator[Callable[..., Connection]]:
    """Start a second process; it has to end well."""
    spawn = multiprocessing.get_context("spawn")
    started = []

    def start(target: Callable[..., None], *args: object) -> Connection:
        here, there = spawn.Pipe()
        process = spawn.Process(target=target, args=(there, *args))
        process.start()
        started.append((process, here))
        there.close()
        return here

    yield start
    for process, here in started:
        process.join(30)
        here.close()
        assert process.exitcode == 0


@pytest.mark.parametrize("kind", MAKE)
@pytest.mark.parametrize("layers", ["pool", "pool over pool over coarse"])
def test_arrays_written_here_are_read_there(
    start: Callable[..., Connection], tmp_path: Path, kind: str, layers: str
) -> None:
    provider = MAKE[kind](tmp_path)
    pools = [Pool(provider)] if layers == "pool" else [Pool(CoarseProvider(provider))]
    if layers != "pool":
        pools.append(Pool(pools[0]))
    pipe = start(read_and_answer)
    # Several pieces of one root, so that each is found at its own offset.
    for _ in range(3):
        memory = pools[-1].allocate(8 * SHAPE[0] * SHAPE[1])
        mine = arrays_of(memory)[0]
        mine[...] = numbers(1)
        pipe.send(memory)
        for seen in pipe.recv():
            assert np.array_equal(seen, numbers(1))
        assert pipe.recv()
        assert np.array_equal(mine, numbers(2))
        assert pipe.recv() == 0, "the other process let go of the memory"
    pipe.send(None)
    del mine, memory


@pytest.mark.parametrize("kind", MAKE)
def test_arrays_written_there_are_read_here(
    start: Callable[..., Connection], tmp_path: Path, kind: str
) -> None:
    pipe = start(write, kind, tmp_path)
    with pipe.recv() as mapping:
        arrays = arrays_of(mapping)
        for seen in arrays:
            assert np.array_equal(seen, numbers(3))
        locked = arrays_of(mapping, read_only=True)
        assert not any(array.flags.writeable for array in locked)
        arrays[1][...] = numbers(4)
        assert np.array_equal(locked[0], numbers(4))
        pipe.send("written")
        assert np.array_equal(pipe.recv(), numbers(4))
        del arrays, locked, seen
    with pytest.raises(umfpy.StaleHandle):
        umfpy.view(mapping)
    umfpy.ipc.clear_cache()
