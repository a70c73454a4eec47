"""Addresses of the device without memory behind them."""

from __future__ import annotations

import heapq
import threading

from umfpy.errors import OutOfMemoryError
from umfpy.providers.host.address_map import AddressMap
from umfpy.providers.host.arguments import round_up
from umfpy.providers.vmm.driver import VmmDriver


class AddressSpace:
    """Large reservations, of which ranges are taken and given back.

    A range is put where most room is left behind it and before it, so that it and its
    neighbours can grow in place: addresses cost nothing.  Free neighbours are joined, unless
    they are of two reservations: no mapping may cross the end of one.

    Parameters
    ----------
    granularity
        What the driver aligns reservations to by itself, and the unit of all ranges; a power of
        two.
    span
        Bytes to reserve at once; more where a range needs more.
    """

    def __init__(self, driver: VmmDriver, granularity: int, span: int) -> None:
        self._driver = driver
        self._granularity = granularity
        self._span = round_up(span, granularity)
        self._lock = threading.Lock()
        self._reservations: AddressMap[int] = AddressMap()  # base: bytes
        self._free: dict[int, int] = {}  # start: bytes
        self._ends: dict[int, int] = {}  # end: start
        #: (-bytes, start) of the free ranges, and of some that are not there any more.
        self._largest: list[tuple[int, int]] = []

    @property
    def reserved(self) -> int:
        """Bytes of addresses, taken or not."""
        with self._lock:
            return sum(size for _, size in self._reservations.items())

    def take(self, size: int, alignment: int) -> int:
        """Return the start of a range, aligned to a power of two; O(log of the free ranges).

        Raises
        ------
        OutOfMemoryError
            There are no more such addresses.
        DriverError
            The driver refused for another reason.
        """
        with self._lock:
            hole = self._largest_hole()
            start = None if hole is None else self._place(hole, size, alignment)
            if hole is None or start is None:
                extra = alignment if alignment > self._granularity else 0
                hole = self._reserve(round_up(size + extra, self._granularity))
                start = round_up(hole, alignment)
            self._cut(hole, start, size)
            return start

    def take_at(self, start: int, size: int) -> bool:
        """Take the range that begins right behind a taken one; False if it is not free."""
        with self._lock:
            if start in self._reservations or self._free.get(start, 0) < size:
                return False
            self._cut(start, start, size)
            return True

    def give(self, start: int, size: int) -> None:
        """Take a range back; O(log of the free ranges)."""
        with self._lock:
            end = start + size
            if start in self._ends and start not in self._reservations:
                start = self._ends[start]
                self._remove(start)
            if end in self._free and end not in self._reservations:
                end += self._remove(end)
            self._add(start, end - start)

    def reservation(self, ptr: int) -> int:
        """Return the base of the reservation that a taken address is in."""
        with self._lock:
            found = self._reservations.last_before(ptr + 1)
            assert found is not None
            return found[0]

    def trim(self) -> None:
        """Give reservations back in which nothing is taken.

        Raises DriverError if the driver refuses; those that are left stay in use.
        """
        with self._lock:
            for base, size in self._reservations.items():
                if self._free.get(base) == size:
                    self._driver.unreserve(base, size)
                    self._remove(base)
                    self._reservations.pop(base)

    def _largest_hole(self) -> int | None:
        heap = self._largest
        if len(heap) > 64 + 4 * len(self._free):
            heap[:] = [(-size, start) for start, size in self._free.items()]
            heapq.heapify(heap)
        while heap and self._free.get(heap[0][1]) != -heap[0][0]:
            heapq.heappop(heap)
        return heap[0][1] if heap else None

    def _place(self, hole: int, size: int, alignment: int) -> int | None:
        """Return where in the hole to put a range; None if it does not fit."""
        end = hole + self._free[hole]
        lowest = round_up(hole, alignment)
        if lowest + size > end:
            return None
        if hole in self._reservations:
            return lowest  # nothing before it could grow into the room
        middle = round_up((hole + end - size) // 2, max(alignment, self._granularity))
        return middle if middle + size <= end else lowest

    def _reserve(self, least: int) -> int:
        """Return the base of a new reservation."""
        wanted = max(self._span, least)
        try:
            base, size = self._driver.reserve(wanted)
        except OutOfMemoryError:
            if wanted == least:
                raise
            base, size = self._driver.reserve(least)
        self._reservations.put(base, size)
        self._add(base, size)
        return base

    def _cut(self, hole: int, start: int, size: int) -> None:
        """Take a range out of the hole around it."""
        end = hole + self._remove(hole)
        if start > hole:
            self._add(hole, start - hole)
        if start + size < end:
            self._add(start + size, end - start - size)

    def _add(self, start: int, size: int) -> None:
        self._free[start] = size
        self._ends[start + size] = start
        heapq.heappush(self._largest, (-size, start))

    def _remove(self, start: int) -> int:
        """Forget a free range and return its bytes."""
        size = self._free.pop(start)
        del self._ends[start + size]
        return size
