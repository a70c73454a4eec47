"""Sliced pages in a unit that is no power of two."""

from __future__ import annotations

from umfpy.core.pages import take_span
from umfpy.errors import AlignmentError
from umfpy.manager.granting import GrantingPool
from umfpy.manager.sleepers import Choice
from umfpy.manager.sliced import SlicedPool
from umfpy.pools.supply import WHOLE


class UnevenSlicedPool(GrantingPool, SlicedPool):
    """A sliced pool for an alignment that is no power of two.

    The map counts in the largest power of two that divides it, and every slice is a multiple of
    the alignment, so that everything else is, too.  Pages go down a rung as a whole: what is left
    of one that was cut would not begin at a multiple.
    """

    def _block(self, size: int, alignment: int, stream: int, index: bool) -> int:
        if alignment > self._properties.granule:
            raise AlignmentError(
                f"pool {self.name!r} has slices at multiples of {self.unit} bytes, and none that "
                f"are aligned to {alignment}"
            )
        return super()._block(size, 0, stream, index)

    def _lower_in(self, unit: int) -> None:
        super()._lower_in(WHOLE)

    def _choose_asleep(self, size: int, alignment: int) -> Choice | None:
        return super()._choose_asleep(self._span(size), 0)

    def _take(self, size: int, alignment: int, stream: int, index: bool) -> int | None:
        return take_span(self, size, self._span(size), stream, index)

    def _span(self, size: int) -> int:
        return self._properties.align_up(size) or self.unit
