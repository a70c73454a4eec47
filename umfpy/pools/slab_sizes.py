"""The sizes of cells, and of the slabs that are cut into them."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from umfpy.core.pages import LARGEST_SLACK
from umfpy.errors import InvalidArgument
from umfpy.pools.growth import round_up


def bucket_sizes(smallest: int, largest: int, granule: int) -> tuple[int, ...]:
    """Return the sizes of cells in bytes, ascending: 2^n and 1.5 * 2^n, in whole granules.

    The first is at least `smallest`, the last the first that is at least `largest`.
    """
    sizes: list[int] = []
    power = granule
    while not sizes or sizes[-1] < largest:
        half = power + power // 2 if power > 1 else 0
        for size in (power, half):
            if (
                size % granule == 0
                and size >= max(smallest, 1)
                and (not sizes or sizes[-1] < largest)
            ):
                sizes.append(size)
        power *= 2
    return tuple(sizes)


def natural_alignment(cell: int) -> int:
    """Return what every multiple of `cell` is aligned to: its largest power of two."""
    return cell & -cell


@dataclass(frozen=True)
class SlabSizes:
    """Which cells a pool has, and which one serves a request; all numbers are bytes.

    Attributes
    ----------
    cells
        The sizes of the buckets, ascending.
    largest
        Requests above it get memory of their own.
    slab
        What a slab has at least.
    granule
        What an address is aligned to if nobody asks for more.
    """

    cells: tuple[int, ...]
    largest: int
    slab: int
    granule: int

    @classmethod
    def of(cls, *, smallest: int, largest: int, slab: int, granule: int) -> SlabSizes:
        """Return the sizes; InvalidArgument, with the reason, if there are none like that."""
        if slab < 1:
            raise InvalidArgument(f"slab_size must be at least 1 byte, not {slab}")
        if smallest > largest:
            raise InvalidArgument(
                f"smallest ({smallest} bytes) must not be above largest ({largest} bytes)"
            )
        cells = bucket_sizes(smallest, largest, granule)
        if cells[-1] > LARGEST_SLACK:
            raise InvalidArgument(
                f"largest ({largest} bytes) needs cells of {cells[-1]} bytes, and the map notes "
                f"at most {LARGEST_SLACK} bytes of padding: larger requests need no cell"
            )
        return cls(cells, largest, slab, granule)

    def bucket_for(self, size: int, alignment: int) -> int | None:
        """Return the place in `cells` of the cell for a request, None if it gets its own memory.

        Above the granule an alignment takes a cell that is a multiple of it.
        """
        if size > self.largest:
            return None
        first = bisect_left(self.cells, size)
        if alignment <= self.granule:
            return first
        for place in range(first, len(self.cells)):
            if natural_alignment(self.cells[place]) >= alignment:
                return place
        return None

    def slab_bytes(self, cell: int, unit: int) -> int:
        """Return the bytes of a new slab: as many cells as reach `slab`, in whole units."""
        return round_up(-(-self.slab // cell) * cell, unit)
