"""What a provider has handed out, piece by piece."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from umfpy.arguments import check_number
from umfpy.errors import InvalidArgument
from umfpy.providers.host.address_map import AddressMap


@dataclass(frozen=True)
class Piece:
    """A part of memory that can be freed by itself.

    ``size`` is in bytes as it was asked for; ``origin`` is where it starts in what lies behind
    it: in a file, in a larger native allocation, or else the piece's own address, so that the
    parts of one allocation are contiguous in both; ``usable`` is False between `dalloc` or
    `decommit` and `commit`.
    """

    size: int
    origin: int
    usable: bool = True


class Pieces:
    """The pieces of one provider, by address.

    A call works on a piece that it has taken out of here, so that a second call on the same
    piece at the same time is refused and can never hit what the system maps there next.  Pieces
    do not overlap; no call looks at more of them than it has to do with.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_ptr: AddressMap[Piece] = AddressMap()
        self._unusable: AddressMap[int] = AddressMap()  # bytes of those that are not usable
        self._in_flight = 0

    def __len__(self) -> int:
        """Return how many pieces there are, those that a call is working on included."""
        with self._lock:
            return len(self._by_ptr) + self._in_flight

    @contextmanager
    def coming(self) -> Iterator[None]:
        """Count one more piece while the body makes it and adds it."""
        with self._lock:
            self._in_flight += 1
        try:
            yield
        finally:
            with self._lock:
                self._in_flight -= 1

    @contextmanager
    def none_there(self) -> Iterator[bool]:
        """Yield whether there is no piece; while the body runs none comes."""
        with self._lock:
            yield not (len(self._by_ptr) or self._in_flight)

    def add(self, ptr: int, piece: Piece) -> None:
        """Enter a piece that starts at `ptr`."""
        with self._lock:
            self._put(ptr, piece)

    @contextmanager
    def released(self, ptr: int, size: int) -> Iterator[Piece]:
        """Take the piece out; it comes back if the body raises."""
        with self._lock:
            piece = self._take(ptr, size)
            self._in_flight += 1
        try:
            yield piece
        except BaseException:
            self.add(ptr, piece)
            raise
        finally:
            with self._lock:
                self._in_flight -= 1

    @contextmanager
    def changed(self, ptr: int, size: int, *, usable: bool | None = None) -> Iterator[Piece]:
        """Hold the piece for the body; when that returns, the piece is marked `usable` or not."""
        with self.coming():
            with self.released(ptr, size) as piece:
                yield piece
            self.add(ptr, piece if usable is None else replace(piece, usable=usable))

    def split(self, ptr: int, size: int, first_size: int, unit: int) -> None:
        """Make two pieces of one, cut at `first_size`, a multiple of `unit` bytes."""
        if not 0 < first_size < size or first_size % unit:
            raise InvalidArgument(
                f"cannot cut {size} bytes at {first_size}: the first part must be a multiple of "
                f"{unit} bytes, above 0 and below {size}"
            )
        with self._lock:
            piece = self._take(ptr, size)
            self._put(ptr, replace(piece, size=first_size))
            high = replace(piece, size=size - first_size, origin=piece.origin + first_size)
            self._put(ptr + first_size, high)

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of `size` bytes out of two neighbours, contiguous also in their file."""
        with self._lock:
            first = self._look(low)
            second = self._look(high)
            if low + first.size != high or first.size + second.size != size:
                raise InvalidArgument(
                    f"{first.size} bytes at {low:#x} and {second.size} bytes at {high:#x} do not "
                    f"make one piece of {size} bytes"
                )
            if first.origin + first.size != second.origin:
                raise InvalidArgument(f"{low:#x} and {high:#x} are parts of different allocations")
            if first.usable != second.usable:
                raise InvalidArgument(
                    f"one of {low:#x} and {high:#x} is decommitted: commit it, then merge"
                )
            self._take(high, second.size)
            self._take(low, first.size)
            self._put(low, replace(first, size=size))

    def find(self, ptr: int) -> tuple[int, Piece] | None:
        """Return base and piece around an address, also an interior one; O(log pieces)."""
        with self._lock:
            return self._around(ptr)

    def at(self, ptr: int, size: int, what: str) -> Piece:
        """Return the piece of `size` bytes that starts at `ptr`.

        Raises
        ------
        InvalidArgument
            There is none; the message calls it `what`.
        """
        with self._lock:
            piece = self._by_ptr.get(ptr)
        if piece is None or piece.size != size:
            raise InvalidArgument(f"no {what} of {size} bytes starts at {ptr:#x}")
        return piece

    def check_usable(self, ptr: int, size: int) -> None:
        """Raise InvalidArgument if a range touches a piece that has no accessible backing."""
        if not self._unusable:
            return
        with self._lock:
            last = self._unusable.last_before(ptr + size)
        if last is not None and ptr < last[0] + last[1]:
            raise InvalidArgument(
                f"the {last[1]} bytes at {last[0]:#x} are not accessible: commit them first"
            )

    def _put(self, ptr: int, piece: Piece) -> None:
        self._by_ptr.put(ptr, piece)
        if not piece.usable:
            self._unusable.put(ptr, piece.size)

    def _take(self, ptr: int, size: int) -> Piece:
        piece = self._look(ptr)
        if piece.size != size:
            raise InvalidArgument(f"the piece at {ptr:#x} has {piece.size} bytes, not {size}")
        if not piece.usable:
            self._unusable.pop(ptr)
        return self._by_ptr.pop(ptr)

    def _look(self, ptr: int) -> Piece:
        piece = self._by_ptr.get(ptr)
        if piece is not None:
            return piece
        around = self._around(ptr)
        if around is None:
            raise InvalidArgument(f"{ptr:#x} is not memory of this provider, or was freed already")
        raise InvalidArgument(
            f"{ptr:#x} lies inside the piece at {around[0]:#x} of {around[1].size} bytes; "
            "pass where the piece starts, or split it first"
        )

    def _around(self, ptr: int) -> tuple[int, Piece] | None:
        ptr = check_number(ptr, "ptr", least=None)
        found = self._by_ptr.last_before(ptr + 1)
        return found if found is not None and ptr < found[0] + found[1].size else None
