"""Operations to replay: random ones from a seed, or those of a trace."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from umfpy.bench.native.loop import RELEASE, TAKE, Churn, Loop, Op, OpArray, Ops, Work

#: Where the C loop notes addresses.
SlotArray: TypeAlias = "ctypes.Array[ctypes.c_void_p]"


@dataclass(frozen=True)
class Sizes:
    """Sizes in bytes, uniform from `low` to `high`, or their logarithm is."""

    low: int
    high: int
    logarithmic: bool = False


class Workload:
    """Operations in three parts, of which `timed` is measured, and the slots they use.

    It keeps alive what its `work` points at.
    """

    def __init__(
        self,
        timed: OpArray,
        slots: SlotArray,
        *,
        prepare: OpArray | None = None,
        drain: OpArray | None = None,
    ) -> None:
        nothing = pack(())
        self._kept = (prepare or nothing, timed, drain or nothing, slots)
        #: Single allocations and frees in the timed part.
        self.operations = count_operations(timed)
        self.work = Work(
            *(Ops(part, len(part)) for part in self._kept[:3]), ctypes.addressof(slots)
        )


class Generator:
    """Random operations on numbered slots; it knows which are full."""

    def __init__(self, loop: Loop, slots: int, sizes: Sizes, seed: int = 1) -> None:
        self._loop = loop
        self.slots = (ctypes.c_void_p * slots)()
        self._held = (ctypes.c_uint64 * slots)()
        self._churn = Churn(
            random=seed,
            low=sizes.low,
            high=sizes.high,
            logarithmic=sizes.logarithmic,
            slots=slots,
            held=self._held,
        )

    def ramp(self, count: int) -> OpArray:
        """Toggle the first `count` slots in turn: fill them if empty, free them if full."""
        self._churn.sequential, self._churn.replace, self._churn.turn = 1, 0, 0
        return self._loop.generate(self._churn, count)

    def toggle(self, count: int) -> OpArray:
        """Free a random slot if it is full, fill it if not."""
        self._churn.sequential, self._churn.replace = 0, 0
        return self._loop.generate(self._churn, count)

    def replace(self, count: int) -> OpArray:
        """Free and fill again a random slot."""
        self._churn.sequential, self._churn.replace = 0, 1
        return self._loop.generate(self._churn, count)

    def drain(self) -> OpArray:
        """Free every full slot, in turn."""
        full = [slot for slot, size in enumerate(self._held) if size]
        ctypes.memset(self._held, 0, ctypes.sizeof(self._held))
        self._churn.live = 0
        return pack((RELEASE, slot, 0) for slot in full)

    @property
    def peak_live_bytes(self) -> int:
        """The most that the slots held at once, so far."""
        return int(self._churn.peak_live)


def pack(ops: Iterable[tuple[int, int, int]]) -> OpArray:
    """Return (kind, slot, size) triples as an array for the C loop."""
    packed = [Op(size, slot, kind) for kind, slot, size in ops]
    return (Op * len(packed))(*packed)


def count_operations(ops: OpArray) -> int:
    """Return the number of single allocations and frees."""
    kinds = memoryview(ops).cast("B").cast("I")[3::4].tolist()
    return kinds.count(TAKE) + kinds.count(RELEASE) + 2 * kinds.count(TAKE | RELEASE)
