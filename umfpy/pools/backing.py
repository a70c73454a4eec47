"""Putting memory behind free addresses, and taking it to where it is needed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from typing import TYPE_CHECKING

from umfpy.core.extents import HIDDEN, SAFE, UNBACKED, innermost
from umfpy.errors import DriverError, InvalidArgument, OutOfMemoryError
from umfpy.pools import captures
from umfpy.pools.claims import Claim
from umfpy.pools.release import withdraw_export
from umfpy.provider import Capability

if TYPE_CHECKING:
    from umfpy.core.extents import ExtentMap
    from umfpy.pools.cuts import CutExtents
    from umfpy.provider import ChunkInfo, Provider


def commit(provider: Provider, ptr: int, size: int, chunk_size: int | None = None) -> None:
    """Make a piece usable: hidden contents are kept, others may be anything."""
    if Capability.RESERVE in provider.capabilities:
        provider.commit(ptr, size, clear=False, chunk_size=chunk_size)
    else:
        provider.commit(ptr, size)


class Backing:
    """What makes free ranges of one pool usable.

    Each method does the whole of what it says and returns True, or nothing, and returns False:
    another thread had taken a range meanwhile, or began a capture.  What the provider raises
    passes through, with nothing changed.  Callers hold the pool's growth lock.
    """

    def __init__(self, space: ExtentMap, provider: Provider, cuts: CutExtents) -> None:
        self._map = space
        self._provider = provider
        self._cuts = cuts

    def show(self, start: int, size: int) -> bool:
        """Make hidden memory usable, contents kept."""
        return self._commit(start, size, HIDDEN)

    def back(self, start: int, size: int, chunk_size: int | None = None) -> bool:
        """Put new memory behind addresses, in chunks of that size; its contents are anything.

        Raises
        ------
        OutOfMemoryError
            The provider has no more.
        """
        return self._commit(start, size, UNBACKED, chunk_size)

    def _commit(self, start: int, size: int, state: int, chunk_size: int | None = None) -> bool:
        claim = Claim.take(self._map, start, size, state)
        if claim is None:
            return False
        with claim:
            self._cuts.isolate(start, size)
            commit(self._provider, start, size, chunk_size)
            claim.become(SAFE)
            self._cuts.mark(start, size, usable=True)
        return True

    def move(self, chunks: Sequence[ChunkInfo], start: int) -> bool:
        """Take the memory of free chunks to addresses that have none.

        The device is waited for: a stream may still be using what was freed.
        """
        size = sum(chunk.size for chunk in chunks)
        with ExitStack() as held:
            if not held.enter_context(captures.shrinking(self._provider)):
                return False
            here = Claim.take(self._map, start, size, UNBACKED)
            if here is None:
                return False
            held.enter_context(here)
            sources = []
            for chunk in chunks:
                source = Claim.take(self._map, chunk.ptr, chunk.size, SAFE)
                if source is None:
                    return False
                sources.append(held.enter_context(source))
            self._wait_for(*sources)
            for claim in (here, *sources):
                self._cuts.isolate(claim.start, claim.size)
            try:
                if not self._moved([(s.start, s.size) for s in sources], start, size):
                    return False
            except (DriverError, OutOfMemoryError):
                for source in sources:
                    self._make_sure(source)
                raise
            here.become(SAFE)
            self._cuts.note(start, usable=True)
            for source in sources:
                source.become(UNBACKED)
                self._cuts.note(source.start, usable=False)
            for claim in (here, *sources):
                self._cuts.join(claim.start, claim.size)
        return True

    def drop(self, chunk: ChunkInfo) -> bool:
        """Give the device the memory of a free chunk back; the addresses stay.

        The device is waited for, as in `move`.
        """
        claim = Claim.take(self._map, chunk.ptr, chunk.size, SAFE)
        if claim is None:
            return False
        with claim, captures.shrinking(self._provider) as may:
            if not may:
                return False
            self._wait_for(claim)
            extent = innermost(chunk.ptr)
            assert extent is not None, "what is claimed is in an extent"
            self._cuts.isolate(chunk.ptr, chunk.size)
            withdraw_export(extent, chunk.ptr, chunk.size)
            self._provider.decommit(chunk.ptr, chunk.size)
            claim.become(UNBACKED)
            self._cuts.mark(chunk.ptr, chunk.size, usable=False)
        return True

    def _make_sure(self, claim: Claim) -> None:
        """Have memory be hidden that a driver which failed twice has not put back.

        Where it did, `commit` does nothing.
        """
        try:
            self._provider.commit(claim.start, claim.size)
        except (DriverError, OutOfMemoryError):
            claim.become(HIDDEN)
            self._cuts.note(claim.start, usable=False)

    def _wait_for(self, *claims: Claim) -> None:
        """Have the device done with what was freed before it was claimed."""
        if Capability.STREAMS in self._provider.capabilities:
            self._provider.synchronize()
        for claim in claims:
            claim.waited()

    def _moved(self, sources: Sequence[tuple[int, int]], start: int, size: int) -> bool:
        """Take memory elsewhere; False if another thread has exported some of it meanwhile.

        That is the memory of an allocation which was freed while it was being exported.
        """
        try:
            self._provider.remap(sources, start, size)
        except InvalidArgument:
            chunks = chain.from_iterable(self._provider.chunks(*source) for source in sources)
            if any(chunk.exported for chunk in chunks):
                return False
            raise
        return True
