"""A whole trace in memory, ready to be replayed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from umfpy.errors import InvalidArgument
from umfpy.trace.format import ALLOCATE, LARGEST, Event
from umfpy.trace.reader import TraceReader

if TYPE_CHECKING:
    # The class takes no parameter at run time before Python 3.12.
    Numbers = array[int]

#: In `Trace.streams`, at a free: on the stream of the allocation.
SAME_STREAM = LARGEST


@dataclass(frozen=True)
class Trace:
    """The events as numbers, with the ids replaced by slots that are used again.

    Event `i` allocates ``sizes[i]`` bytes on ``streams[i]`` into slot ``codes[i]``; if the code is
    negative, it frees the slot ``~codes[i]``, on ``streams[i]`` or, with `SAME_STREAM`, on the
    stream of the allocation.
    """

    name: str
    header: Mapping[str, str]
    codes: Numbers = field(repr=False)
    sizes: Numbers = field(repr=False)
    streams: Numbers = field(repr=False)
    slots: int  #: the most allocations that are live at once
    allocations: int
    frees: int
    peak_live_bytes: int  #: the most bytes that are live at once, as requested

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a file; raises what `TraceReader` does."""
        with TraceReader(path) as reader:
            return cls.from_events(reader, name=str(path), header=reader.header)

    @classmethod
    def from_events(
        cls, events: Iterable[Event], *, name: str, header: Mapping[str, str] | None = None
    ) -> Trace:
        """Make a trace of events whose frees follow their allocations."""
        codes, sizes, streams = array("q"), array("Q"), array("Q")
        slots = _Slots()
        live = peak = allocations = 0
        for event in events:
            if event.op == ALLOCATE:
                codes.append(slots.take(event.id, event.size))
                sizes.append(event.size)
                allocations += 1
                live += event.size
                peak = max(peak, live)
            else:
                slot, size = slots.give(event.id)
                codes.append(~slot)
                sizes.append(size)
                live -= size
            streams.append(SAME_STREAM if event.stream is None else event.stream)
        return cls(
            name=name,
            header=dict(header or {}),
            codes=codes,
            sizes=sizes,
            streams=streams,
            slots=slots.count,
            allocations=allocations,
            frees=len(codes) - allocations,
            peak_live_bytes=peak,
        )

    def __len__(self) -> int:
        return len(self.codes)

    def operations(self) -> Iterator[tuple[int, int, int]]:
        """Yield code, size and stream of each event."""
        return zip(self.codes, self.sizes, self.streams, strict=True)

    def fact(self, key: str) -> int | None:
        """Return a number of the head, such as ``"torch_peak_reserved"``, or None.

        Raises
        ------
        InvalidArgument
            The head gives something else than a whole number for `key`.
        """
        text = self.header.get(key)
        if text is None:
            return None
        try:
            return int(text)
        except ValueError:
            raise InvalidArgument(
                f"{self.name}: the head gives {text!r} for {key}, not a whole number"
            ) from None

    @property
    def torch_peak_reserved(self) -> int | None:
        """The bytes that PyTorch's own allocator held at its peak, where the trace says so."""
        return self.fact("torch_peak_reserved")

    @property
    def torch_utilization(self) -> float | None:
        """Peak live over what PyTorch held, or None where the trace does not say."""
        reserved = self.torch_peak_reserved
        return self.peak_live_bytes / reserved if reserved else None


class _Slots:
    """A dense number for each live id."""

    def __init__(self) -> None:
        self.count = 0
        self._free: list[int] = []
        self._taken: dict[int, tuple[int, int]] = {}

    def take(self, id: int, size: int) -> int:
        if id in self._taken:
            raise InvalidArgument(f"id {id} is allocated again while it is live")
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.count
            self.count += 1
        self._taken[id] = slot, size
        return slot

    def give(self, id: int) -> tuple[int, int]:
        if id not in self._taken:
            raise InvalidArgument(f"id {id} is freed but not allocated")
        slot, size = self._taken.pop(id)
        self._free.append(slot)
        return slot, size
