"""Who has which granule, a byte each: an exact shadow that compares memory, not objects.

The questions are slices, compared in C, so that a walk of millions of steps can afford them.
"""

from __future__ import annotations

from tests.fakes.provider import FakeProvider
from umfpy import Capability
from umfpy.core.extents import COMING, HIDDEN, LEAVING, SAFE, UNBACKED

GRANULE = 512
SHIFT = 9

FREE, USED, OUTSIDE = 0, 1, 2  # in `Cells.state`
STATES = {SAFE: FREE, HIDDEN: 3, UNBACKED: 4, LEAVING: 5, COMING: 6}  # the same, of free granules
RETIRING = 255  # in `Cells.last`: nobody's until the device was waited for

_LONGEST = 4096
_FREE, _USED, _OUTSIDE = (bytes([state]) * _LONGEST for state in (FREE, USED, OUTSIDE))
_IDLE = bytes([FREE, STATES[HIDDEN], STATES[UNBACKED]])
_STREAMS = [bytes([stream]) * _LONGEST for stream in range(8)]
_RETIRE = bytes([0]) + bytes([RETIRING]) * 255
_RETIRED = bytes([*range(RETIRING), 0])


class Cells:
    """The granules of one provider from its first address on.

    `state` says what a granule is; `last` which stream, from 1 on, may still use a free one.
    """

    def __init__(self) -> None:
        self.base = 0
        self.state = bytearray()
        self.last = bytearray()
        self.used = 0  # granules

    def take(self, start: int, size: int, stream: int = 0) -> None:
        """Somebody was given `size` bytes at `start` for `stream`, counted from 1; 0: no order."""
        low = (start - self.base) >> SHIFT
        count = (size + GRANULE - 1) >> SHIFT or 1
        high = low + count
        assert not start & (GRANULE - 1), "aligned"
        assert self.state[low:high] == _FREE[:count], "free, and inside what the provider gave"
        # What is left after stripping is a granule that another stream may still be using.
        assert not self.last[low:high].strip(_STREAMS[stream][:1] + b"\0"), "ordered"
        self.state[low:high] = _USED[:count]
        self.last[low:high] = _FREE[:count]
        self.used += count

    def give(self, start: int, size: int, stream: int = 0) -> None:
        """It was freed, and `stream` may still be using it."""
        low = (start - self.base) >> SHIFT
        count = (size + GRANULE - 1) >> SHIFT or 1
        high = low + count
        assert self.state[low:high] == _USED[:count], "it was theirs"
        self.state[low:high] = _FREE[:count]
        self.last[low:high] = _STREAMS[stream][:count]
        self.used -= count

    def has_room(self, size: int, extents: dict[int, int]) -> bool:
        """Whether so many bytes are free in one piece of one extent, whatever the streams."""
        wanted = _FREE[: (size + GRANULE - 1) >> SHIFT or 1]
        return any(
            self.state.find(wanted, (at - self.base) >> SHIFT, (at + length - self.base) >> SHIFT)
            >= 0
            for at, length in extents.items()
        )

    def is_free(self, start: int, size: int, state: int) -> bool:
        """Whether all of it is free and in this state, whatever the streams."""
        low, high = (start - self.base) >> SHIFT, (start + size - self.base) >> SHIFT
        return self.state[low:high] == bytes([STATES[state]]) * (high - low)

    def retag(self, start: int, size: int, state: int) -> None:
        """Free memory changed its state; the device was waited for meanwhile."""
        low, high = (start - self.base) >> SHIFT, (start + size - self.base) >> SHIFT
        self.state[low:high] = bytes([STATES[state]]) * (high - low)
        self.last[low:high] = bytes(high - low)

    def bytes_in(self, *states: int) -> int:
        """How much free memory is in any of these states."""
        return sum(self.state.count(STATES[state]) for state in states) * GRANULE

    def retire(self) -> None:
        self.last = self.last.translate(_RETIRE)

    def retired(self) -> None:
        self.last = self.last.translate(_RETIRED)

    def waited(self) -> None:
        """The device is idle."""
        self.last = bytearray(len(self.last))

    def open(self, start: int, size: int) -> None:
        """The provider gave this; addresses ascend, or come again."""
        if not self.state:
            self.base = start
        low, high = (start - self.base) >> SHIFT, (start + size - self.base) >> SHIFT
        missing = high - len(self.state)
        if missing > 0:
            self.state += bytes([OUTSIDE]) * missing
            self.last += bytes(missing)
        assert not self.state[low:high].strip(bytes([OUTSIDE])), "not given twice"
        self.state[low:high] = bytes(high - low)
        self.last[low:high] = bytes(high - low)

    def close(self, start: int, size: int) -> None:
        """The provider got this back."""
        low, high = (start - self.base) >> SHIFT, (start + size - self.base) >> SHIFT
        assert not self.state[low:high].strip(_IDLE), "nothing in it is used"
        assert not any(self.last[low:high]), "no stream is using it"
        self.state[low:high] = bytes([OUTSIDE]) * (high - low)


class CellProvider(FakeProvider):
    """A fake whose memory is watched by `Cells`."""

    def __init__(self, *, capacity: int | None = None, ordered: bool = False) -> None:
        super().__init__(
            granule=GRANULE,
            capacity=capacity,
            capabilities=Capability.STREAMS if ordered else Capability.NONE,
        )
        self.cells = Cells()
        self.on_synchronize = self.cells.waited

    def alloc(self, size: int, alignment: int = 0) -> int:
        ptr = super().alloc(size, alignment)
        self.cells.open(ptr, size)
        return ptr

    def free(self, ptr: int, size: int) -> None:
        super().free(ptr, size)
        self.cells.close(ptr, size)
