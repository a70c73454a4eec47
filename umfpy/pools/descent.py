"""Free memory going down a rung and staying: hidden, purged, or without backing."""

from __future__ import annotations

import contextlib
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED, innermost
from umfpy.errors import UmfpyError
from umfpy.pools.claims import Claim
from umfpy.pools.departure import bounds
from umfpy.pools.release import withdraw_export
from umfpy.provider import Capability

if TYPE_CHECKING:
    from umfpy.core.extents import Extent, ExtentMap
    from umfpy.pools.cuts import CutExtents
    from umfpy.provider import Provider

#: What memory is after each rung that keeps the addresses.
_THEN = {"dalloc": HIDDEN, "purge_lazy": SAFE, "decommit": UNBACKED, "purge_force": SAFE}


@dataclass(frozen=True)
class Run:
    """Free memory of one extent that the provider can work on by itself.

    ``starts`` are the addresses at which it can be cut, the first of them its own; ``end`` is the
    address behind it.
    """

    extent: Extent
    starts: Sequence[int]
    end: int

    @property
    def start(self) -> int:
        """Its first address."""
        return self.starts[0]

    @property
    def size(self) -> int:
        """Its bytes."""
        return self.end - self.start

    def last(self, most: int) -> Run | None:
        """Return as much of the end as has at most so many bytes; None if that is nothing."""
        kept = bisect_left(self.starts, self.end - most)
        return Run(self.extent, self.starts[kept:], self.end) if kept < len(self.starts) else None


@dataclass(frozen=True)
class Step:
    """A run, the state that it was found in, and the claim to it."""

    run: Run
    state: int
    claim: Claim


class Descent:
    """One rung for the free memory of one pool, whose growth lock the caller holds.

    Parameters
    ----------
    space, provider, cuts
        Of the pool.
    rung
        One that the provider has, other than ``"free"``.
    wait
        Waits for the device, so that whatever was freed before is not in use any more.
    whole
        Whether extents go down as a whole or not at all; they do if the provider cannot split.
    """

    def __init__(
        self,
        space: ExtentMap,
        provider: Provider,
        cuts: CutExtents,
        rung: str,
        wait: Callable[[], None],
        *,
        whole: bool = False,
    ) -> None:
        self._space = space
        self._provider = provider
        self._cuts = cuts
        self._rung = rung
        self._call: Callable[[int, int], None] = getattr(provider, rung)
        self._wait = wait
        self._whole = whole or Capability.SPLIT not in provider.capabilities

    def descend(self, keep: int) -> int:
        """Have memory go down while `keep` bytes stay ready for requests; return the bytes.

        What is hidden already goes first, then what is ready, the largest ranges first.  Raises
        what the provider does: what has gone down by then has, the rest is as it was.
        """
        steps = self._claim(keep)
        if steps:
            self._wait_for(steps)
        size = 0
        while steps:
            step = steps.pop()
            try:
                with step.claim:
                    self._lower(step)
            except BaseException:
                _let_go(steps)
                raise
            size += step.claim.size
        return size

    # What is to go, and nobody else's until it has.

    def _claim(self, keep: int) -> list[Step]:
        """Claim what is to go; the last is the first to go."""
        steps: list[Step] = []
        now = self._space.counters()
        room = now["reserved"] - now["hidden"] - keep
        try:
            if self._rung != "dalloc":
                for run in self._runs(HIDDEN):
                    steps.extend(self._steps(run, HIDDEN))
            for run in self._runs(SAFE):
                part = run.last(room) if room > 0 else None
                for step in self._steps(part, SAFE):
                    room -= step.claim.size
                    steps.append(step)
        except BaseException:
            _let_go(steps)
            raise
        return steps[::-1]

    def _steps(self, run: Run | None, state: int) -> Iterator[Step]:
        """Claim a run, unless another thread was first."""
        if run is None:
            return
        low, high = bounds(run.extent)
        start, end = max(run.start, low), min(run.end, high)
        claim = Claim.take(self._space, start, end - start, state)
        if claim is not None:
            yield Step(run, state, claim)

    def _runs(self, state: int) -> list[Run]:
        """Return what the provider can work on of the free memory in a state, largest first."""
        least = 1 if self._whole else self._provider.granularity()
        runs: list[Run] = []
        for start, size in self._space.free_ranges(state, least):
            extent = innermost(start)
            if extent is None or extent.map is not self._space:
                continue  # used meanwhile, by a pool above this one
            runs.extend(self._runs_in(extent, start, start + size))
        return sorted(runs, key=lambda run: run.size, reverse=True)

    def _runs_in(self, extent: Extent, start: int, end: int) -> Iterator[Run]:
        """Tell which parts of a free range of an extent can be cut out of it."""
        low, high = bounds(extent)
        last = extent.base + extent.size
        if (start, end) == (low, high):
            start, end = extent.base, last  # with the ends that fill no granule
        if self._whole or extent.base != low:
            if (start, end) == (extent.base, last):
                yield Run(extent, (start,), end)
            return
        unit = max(self._provider.granularity(extent.size), self._space.granule)
        start += (extent.base - start) % unit
        if end != last:
            end -= (end - extent.base) % unit
        if start >= end:
            return
        if Capability.RESERVE in self._provider.capabilities:
            yield from self._chunk_runs(extent, start, end)
        else:
            yield Run(extent, range(start, end, unit), end)

    def _chunk_runs(self, extent: Extent, start: int, end: int) -> Iterator[Run]:
        """Tell of which whole chunks a range is made, those side by side as one."""
        chunks = self._provider.chunks(start, end - start)
        breaks = [
            index
            for index, (one, other) in enumerate(pairwise(chunks), 1)
            if one.ptr + one.size != other.ptr
        ]
        for first, behind in pairwise([0, *breaks, len(chunks)]):
            if first < behind:
                last = chunks[behind - 1]
                starts = [chunk.ptr for chunk in chunks[first:behind]]
                yield Run(extent, starts, last.ptr + last.size)

    def _wait_for(self, steps: Sequence[Step]) -> None:
        try:
            self._wait()
        except BaseException:
            _let_go(steps)
            self._space.retire(everything=True)  # a stream may still be using it
            raise
        for step in steps:
            step.claim.waited()

    # Going.

    def _lower(self, step: Step) -> None:
        start, size = step.run.start, step.run.size
        self._cuts.isolate(start, size)
        state = step.state
        try:
            if self._rung == "decommit":
                # Only then does what other processes open lose the memory behind it.
                withdraw_export(step.run.extent, start, size)
            if state == HIDDEN and _THEN[self._rung] == SAFE:
                self._provider.commit(start, size)  # to purge it, it has to be usable
                state = SAFE
                step.claim.become(state)
            self._call(start, size)
        except BaseException:
            with contextlib.suppress(UmfpyError):  # the first error is the one to tell
                self._cuts.mark(start, size, usable=state == SAFE)
            raise
        state = _THEN[self._rung]
        step.claim.become(state)
        self._cuts.mark(start, size, usable=state == SAFE)


def _let_go(steps: Sequence[Step]) -> None:
    for step in steps:
        step.claim.release()
