"""Bytes that are held of a source of memory, now and at most."""

from __future__ import annotations

import threading

from umfpy.errors import OutOfMemoryError
from umfpy.provider import Provider
from umfpy.units import format_size


class Holding:
    """Counts what is held of `upstream`, with what that keeps for reuse, within a capacity.

    What a provider keeps behind no address is taken from the device as much as the rest, and so
    it counts; before the capacity is exceeded, `upstream` is asked to let go of it.

    Parameters
    ----------
    capacity
        The most bytes to hold at once; None for what upstream has.
    """

    def __init__(self, upstream: Provider, capacity: int | None) -> None:
        self._upstream = upstream
        self._capacity = capacity
        self._lock = threading.Lock()
        self._backed = 0  # bytes behind addresses
        self._claimed = 0  # by calls that are under way
        self._peak = 0

    @property
    def kept(self) -> int:
        """Bytes that upstream keeps for reuse."""
        return int(getattr(self._upstream, "kept_bytes", 0))

    @property
    def now(self) -> int:
        """Bytes held, kept ones included."""
        return self._backed + self.kept

    @property
    def peak(self) -> int:
        """The most there ever were."""
        return self._peak

    def claim(self, size: int) -> None:
        """Make sure that `size` bytes more fit, for a call that takes them; `settle` follows.

        Raises
        ------
        OutOfMemoryError
            They would exceed the capacity.
        """
        with self._lock:
            room = self._room(size)
            self._claimed += size
        try:
            if room is not None and room < self.kept:
                self.trim(room)
        except BaseException:
            self.settle(size, 0)
            raise

    def settle(self, claimed: int, taken: int) -> None:
        """Count what a call has taken that had `claimed` bytes; negative for what went."""
        with self._lock:
            self._claimed -= claimed
            self._backed += taken
            self._peak = max(self._peak, self.now)

    def trim(self, keep_bytes: int) -> int:
        """Let upstream give back what it keeps beyond `keep_bytes`; return how much that was."""
        trim = getattr(self._upstream, "trim", None)
        return int(trim(keep_bytes)) if trim is not None else 0

    def _room(self, size: int) -> int | None:
        """Return what is left beside `size` bytes more; None if there is no limit."""
        if self._capacity is None:
            return None
        room = self._capacity - self._backed - self._claimed - size
        if room >= 0:
            return room
        raise OutOfMemoryError(
            f"{format_size(size)} more would exceed the capacity of "
            f"{format_size(self._capacity)}; {format_size(self.now)} are held",
            requested=size,
            reserved=self.now,
            limit=self._capacity,
            provider=self._upstream.name,
        )
