"""What the processes run that `multiprocessing` starts; importable there by this name."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ipc_support import make_side

import umfpy.ipc


def answer(kind: str, tasks: Any, answers: Any) -> None:
    """Receive until None comes; each thing is opened, read, written to and answered."""
    side = make_side(kind)
    # None for providers that are counted by their driver's calls: those take none along.
    carried = getattr(side.provider, "counts", Counter())
    start = carried["descriptors"]
    while (received := tasks.get()) is not None:
        mapping = _open(received)
        answers.put((bytes(mapping.copy_to_host())[:8], mapping.size, type(received).__name__))
        mapping.copy_from_host(b"answered")
        mapping.close()
    answers.put((side.counts(), carried["descriptors"] - start))


def take(pipe: Any, *received: Any) -> None:
    """Answer arguments of the Process, then one thing from a pipe, which is passed back."""
    for thing in received:
        pipe.send(bytes(_open(thing).copy_to_host())[:8])
    thing = pipe.recv()
    pipe.send(bytes(_open(thing).copy_to_host())[:8])
    pipe.send(thing)


def forward(pipe: Any, onwards: Any) -> None:
    """Receive something, open it, and send it on to a third process."""
    mapping = _open(pipe.recv())
    onwards.send(mapping)
    onwards.recv()


def count_received(kind: str, tasks: Any, answers: Any, count: int) -> None:
    """Take `count` handles, keep them all, and open them."""
    side = make_side(kind)
    mappings = [umfpy.ipc.open_ipc(tasks.get()) for _ in range(count)]
    answers.put((side.counts(), len({m.ptr for m in mappings})))


def _open(received: Any) -> umfpy.ipc.IpcMapping:
    if isinstance(received, umfpy.ipc.IpcMapping):
        return received
    return umfpy.ipc.open_ipc(received)
