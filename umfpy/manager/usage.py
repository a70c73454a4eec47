"""How much memory a manager and its pools have."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes and slices at one moment.

    A peak is the highest that its number has been after any request, since the manager was made
    or `MemoryManager.reset_peaks` was called.
    """

    number_allocs: int  #: live slices
    bytes_in_use: int  #: as requested
    #: What requests were rounded up by to the alignment; where slices share pages, an empty one
    #: takes a unit of it.
    bytes_padding: int
    bytes_reserved: int  #: held from the provider: memory, used or not
    peak_number_allocs: int
    peak_bytes_in_use: int
    peak_bytes_reserved: int
    bytes_hidden: int = 0  #: of those reserved, what `trim` made unusable: see ``rung="dalloc"``
    bytes_unbacked: int = 0  #: addresses without memory, beside what is reserved

    @property
    def efficiency(self) -> float:
        """Bytes in use over bytes reserved; 1.0 where none are reserved."""
        return ratio(self.bytes_in_use, self.bytes_reserved, otherwise=1.0)

    @property
    def padding_overhead(self) -> float:
        """Bytes of padding over bytes in use and padding; 0.0 where there are none."""
        padded = self.bytes_in_use + self.bytes_padding
        return ratio(self.bytes_padding, padded, otherwise=0.0)


@dataclass(frozen=True)
class PoolUsage:
    """One pool of a manager."""

    name: str
    kind: str  #: "persistent", "sliced", "exclusive" or "direct"
    pages: int
    idle_pages: int  #: without a live slice, and ready for requests
    usage: MemoryUsage
    asleep_pages: int = 0  #: without a live slice, and down a rung, as a whole or in part


def ratio(part: int, whole: int, *, otherwise: float) -> float:
    """Return ``part / whole``, or `otherwise` where that means nothing."""
    return part / whole if whole else otherwise
