"""What a pool knows of itself, in exact bytes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PoolStats:
    """The state of a pool at one moment; all sizes are bytes.

    ``requested_bytes <= used_bytes <= reserved_bytes``, and each peak is the highest that its
    counter has been since the pool was made or `Pool.reset_peaks` was called.
    """

    requested_bytes: int  #: asked for by live allocations
    used_bytes: int  #: the same with padding
    reserved_bytes: int  #: memory held from the provider
    peak_requested_bytes: int
    peak_used_bytes: int
    peak_reserved_bytes: int
    largest_free_bytes: int  #: the largest request that needs nothing from the provider
    metadata_bytes: int  #: host memory of the pool's own structures
    live_allocations: int
    allocations: int  #: ever
    frees: int  #: ever
    extents: int  #: held from the provider
    provider_allocs: int  #: calls that succeeded
    provider_frees: int
    hidden_bytes: int = 0  #: of those reserved, what `trim` made unusable: see ``rung="dalloc"``
    unbacked_bytes: int = 0  #: addresses without memory, beside what is reserved

    @property
    def free_bytes(self) -> int:
        """What allocations can use at once: reserved, not used, and not hidden."""
        return self.reserved_bytes - self.used_bytes - self.hidden_bytes

    @property
    def utilization(self) -> float:
        """Peak of requested over peak of reserved bytes; 1.0 for a pool that never held any."""
        if self.peak_reserved_bytes == 0:
            return 1.0
        return self.peak_requested_bytes / self.peak_reserved_bytes
