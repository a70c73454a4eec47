"""What a map of extents may do, in the plainest terms: any placement that harms nobody."""

from __future__ import annotations

from dataclasses import dataclass, field

from umfpy.core.extents import COMING, HIDDEN, SAFE, UNBACKED


@dataclass(frozen=True)
class Live:
    """An allocation: where it starts, what was asked for, and the stream it was made on."""

    start: int
    size: int
    span: int
    stream: int

    @property
    def end(self) -> int:
        return self.start + self.span


@dataclass
class Shadow:
    """Live allocations, and who may still be using free memory; granules are counted one by one."""

    granule: int
    ordered: bool = False
    extents: dict[int, int] = field(default_factory=dict)  #: base: size
    live: dict[int, Live] = field(default_factory=dict)  #: start: allocation
    user: dict[int, int] = field(default_factory=dict)  #: granule's address: live start
    last: dict[int, int] = field(default_factory=dict)  #: free granule: stream not waited for
    apart: dict[int, int] = field(default_factory=dict)  #: free granule: its state, if not SAFE

    def padded(self, size: int) -> int:
        return max(-(-size // self.granule), 1) * self.granule

    def granules(self, start: int, span: int) -> range:
        return range(start, start + span, self.granule)

    def allocated(self, start: int, size: int, alignment: int, stream: int) -> None:
        """Check a placement, and enter it."""
        span = self.padded(size)
        assert start % max(alignment, self.granule) == 0, "aligned"
        assert any(
            base <= start and start + span <= base + extent for base, extent in self.extents.items()
        ), "inside one extent"
        for granule in self.granules(start, span):
            assert granule not in self.user, "no overlap with live memory"
            assert granule not in self.apart, "nobody may use this"
            assert self.last.pop(granule, stream) == stream, "another stream may be using this"
            self.user[granule] = start
        self.live[start] = Live(start, size, span, stream)

    def freed(self, start: int, stream: int) -> None:
        gone = self.live.pop(start)
        for granule in self.granules(start, gone.span):
            del self.user[granule]
            if self.ordered:
                self.last[granule] = stream

    def split(self, start: int, first: int) -> None:
        whole = self.live[start]
        self._enter(Live(start, first, first, whole.stream))
        self._enter(Live(start + first, whole.size - first, whole.span - first, whole.stream))

    def merged(self, low: int, high: int) -> None:
        first, second = self.live[low], self.live.pop(high)
        self._enter(Live(low, first.span + second.size, first.span + second.span, first.stream))

    def _enter(self, piece: Live) -> None:
        self.live[piece.start] = piece
        for granule in self.granules(piece.start, piece.span):
            self.user[granule] = piece.start

    def waited(self, granules: set[int]) -> None:
        """The device finished what it was at with these free granules."""
        for granule in granules:
            self.last.pop(granule, None)

    def added(self, base: int, size: int, *, backed: bool) -> None:
        self.extents[base] = size
        if not backed:
            self.apart.update(dict.fromkeys(self.granules(base, size), UNBACKED))

    def restored(self, base: int) -> None:
        """An extent went and came back: the device was waited for."""
        self.waited(set(self.granules(base, self.extents[base])))

    def removed(self, base: int) -> None:
        for granule in self.granules(base, self.extents.pop(base)):
            self.last.pop(granule, None)
            self.apart.pop(granule, None)

    def is_free(self, start: int, size: int, state: int) -> bool:
        """Whether a range is free and in this state, in one extent, whatever the streams."""
        return any(
            base <= start and start + size <= base + extent for base, extent in self.extents.items()
        ) and all(
            granule not in self.user and self.apart.get(granule, SAFE) == state
            for granule in self.granules(start, size)
        )

    def retagged(self, start: int, size: int, state: int) -> None:
        """Free memory changed its state; the device was waited for meanwhile."""
        for granule in self.granules(start, size):
            self.last.pop(granule, None)
            self.apart.pop(granule, None)
            if state != SAFE:
                self.apart[granule] = state

    @property
    def unbacked(self) -> int:
        return sum(state in (UNBACKED, COMING) for state in self.apart.values()) * self.granule

    @property
    def hidden(self) -> int:
        return sum(state == HIDDEN for state in self.apart.values()) * self.granule

    @property
    def used(self) -> int:
        return sum(piece.span for piece in self.live.values())

    @property
    def requested(self) -> int:
        return sum(piece.size for piece in self.live.values())

    def holds_free(self, size: int, alignment: int, stream: int) -> bool:
        """Whether some free place would do for the request: then refusing it is wrong."""
        span, step = self.padded(size), max(alignment, self.granule)
        for base, extent in self.extents.items():
            start = -(-base // step) * step
            while start + span <= base + extent:
                if all(
                    granule not in self.user
                    and granule not in self.last
                    and granule not in self.apart
                    for granule in self.granules(start, span)
                ):
                    return True
                start += step
        return False
