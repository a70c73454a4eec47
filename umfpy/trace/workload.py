"""A small model in training, as a source of traces: always the same events for one seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

from umfpy.trace.format import ALLOCATE, FREE, Event

#: The trace that comes with umfpy, under ``umfpy/trace/data``, is `training()` written to a file.
SHIPPED = "training.csv.gz"


def training(
    *, steps: int = 12, layers: int = 12, hidden: int = 1024, seed: int = 1
) -> Iterator[Event]:
    """Yield what a transformer of half-precision numbers asks for, step by step.

    Batches differ in length, as text does, so that sizes hardly ever repeat.  Each layer keeps its
    activations until the backward pass, which frees them in the opposite order; gradients live
    until the update, and both passes use scratch space for a moment.  Weights stay live.
    """
    heap = _Heap()
    # Only random() is the same in every version of Python.
    number = random.Random(seed).random
    weights = 12 * hidden * hidden * 2
    for _ in range(layers):
        yield heap.allocate(weights)
    for _ in range(steps):
        tokens = 256 + int(number() * 3840)
        yield from _step(heap, layers, tokens, hidden, weights)


def _step(heap: _Heap, layers: int, tokens: int, hidden: int, weights: int) -> Iterator[Event]:
    line = tokens * hidden * 2
    kept: list[list[int]] = []
    for _ in range(layers):
        query, attention, mlp = (heap.allocate(n) for n in (3 * line, line, 4 * line))
        scratch = heap.allocate(tokens * tokens // 2)
        yield from (query, attention, scratch, heap.free(scratch.id), mlp)
        kept.append([query.id, attention.id, mlp.id])
    gradients = []
    for activations in reversed(kept):
        incoming, gradient = heap.allocate(line), heap.allocate(weights)
        yield from (incoming, gradient)
        gradients.append(gradient.id)
        for id in reversed(activations):
            yield heap.free(id)
        yield heap.free(incoming.id)
    for id in gradients:
        update = heap.allocate(weights // 6)
        yield from (update, heap.free(update.id), heap.free(id))


class _Heap:
    """Numbers the allocations."""

    def __init__(self) -> None:
        self._next = 0

    def allocate(self, size: int) -> Event:
        self._next += 1
        return Event(ALLOCATE, self._next, size, 0)

    def free(self, id: int) -> Event:
        return Event(FREE, id, 0, None)
