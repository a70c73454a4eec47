"""Memory that somebody else owns."""

from __future__ import annotations

import threading
from typing import Any

from umfpy.arguments import check_choice, check_number
from umfpy.errors import InvalidArgument, OutOfMemoryError
from umfpy.provider import Capability
from umfpy.providers.host.arguments import check_request, is_power_of_two, round_up
from umfpy.providers.host.mapped import HostAccess
from umfpy.providers.host.owners import find_range
from umfpy.providers.host.pieces import Piece
from umfpy.providers.host.ranges import FreeRanges
from umfpy.units import format_size

#: What CuPy and PyTorch expect of device memory.
_DEVICE_GRANULE = 512

#: What an address may be of: `umfpy.AllocationInfo.memory_type`.
_TYPES = ("host", "device", "managed", "shared")


class FixedProvider(HostAccess):
    """Hands out a buffer of the caller's, in pieces; it never grows.

    Parameters
    ----------
    buffer
        Any object with a writable, contiguous buffer (``bytearray``, NumPy array, ``mmap``); one
        with ``__cuda_array_interface__`` (CuPy, Numba, PyTorch); or an address.  An object is
        kept alive, and a buffer cannot be resized, as long as this provider lives; an address is
        the caller's to keep valid.
    size
        How many bytes of it to use; needed with an address.
    memory_type, device
        What an address is of: ``"host"``, or a device's, which the host must not touch.
    granule
        The unit of sizes and addresses, a power of two; if not given, 64 bytes on the host and
        512 on a device.  Bytes before the first and after the last whole unit stay unused.

    Raises
    ------
    InvalidArgument
        The buffer is read-only, has gaps, or holds no whole unit.
    """

    name = "fixed"

    def __init__(
        self,
        buffer: Any,
        size: int | None = None,
        *,
        memory_type: str | None = None,
        device: int = -1,
        granule: int | None = None,
    ) -> None:
        super().__init__()
        source = find_range(buffer, size)
        if memory_type is not None:
            check_choice(memory_type, _TYPES, "memory_type")
        self.memory_type = memory_type or ("host" if source.host else "device")
        on_host = source.host and self.memory_type == "host"
        self.device = check_number(device, "device", least=-1)
        usual = HostAccess.granule if on_host else _DEVICE_GRANULE
        self.granule = usual if granule is None else check_number(granule, "granule", least=1)
        if not is_power_of_two(self.granule):
            raise InvalidArgument(f"the granule is {granule}; it must be a power of two")
        self.capabilities = Capability.SPLIT
        if on_host:
            self.capabilities |= Capability.ZERO | Capability.COPY | Capability.HOST_ACCESS
        first = round_up(source.ptr, self.granule)
        last = (source.ptr + source.size) & -self.granule
        if first >= last:
            raise InvalidArgument(
                f"{source.size} bytes at {source.ptr:#x} hold no whole {self.granule} bytes at an "
                f"address aligned to {self.granule}; give a larger buffer"
            )
        self._owner = source.owner
        self._total = last - first
        self._lock = threading.Lock()
        self._free = FreeRanges()
        self._free.add(first, last)

    def alloc(self, size: int, alignment: int = 0) -> int:
        """Return the lowest free range that fits; O(free ranges).

        Raises
        ------
        InvalidArgument
            `size` is below 1.
        AlignmentError
            `alignment` is not a power of two.
        OutOfMemoryError
            No free range of the buffer is that large, with that alignment.
        """
        size, alignment = check_request(size, alignment, self.name)
        alignment = max(alignment, self.granule)
        with self._lock:
            ptr = self._free.take(round_up(size, self.granule), alignment)
            if ptr is None:
                raise self._exhausted(size, alignment)
        self._pieces.add(ptr, Piece(size, ptr))
        return ptr

    def free(self, ptr: int, size: int) -> None:
        """Make a piece free again; its contents stay until somebody else writes there.

        Raises
        ------
        InvalidArgument
            No piece of `size` bytes starts at `ptr`.
        """
        with self._pieces.released(ptr, size), self._lock:
            self._free.add(ptr, ptr + round_up(size, self.granule))

    def granularity(self, size: int = 0) -> int:
        """Return the granule: the buffer has no other unit."""
        return self.granule

    def split(self, ptr: int, size: int, first_size: int) -> None:
        """Make two pieces of one, cut at a multiple of the granule."""
        self._pieces.split(ptr, size, first_size, self.granule)

    def merge(self, low: int, high: int, size: int) -> None:
        """Make one piece of two neighbours."""
        self._pieces.merge(low, high, size)

    def properties(self, ptr: int) -> dict[str, Any]:
        """Return base and size of the piece around `ptr`, and the owner; {} for foreign ones."""
        found = self._pieces.find(ptr)
        if found is None:
            return {}
        return {
            "base": found[0],
            "size": found[1].size,
            "memory_type": self.memory_type,
            "owner": self._owner,
        }

    def memory_info(self) -> tuple[int, int]:
        """Return bytes (free, total) of the buffer's usable part."""
        with self._lock:
            return self._free.total, self._total

    def live_count(self) -> int:
        """Return how many pieces are allocated."""
        return len(self._pieces)

    def __repr__(self) -> str:
        device = f" of device {self.device}" if self.device >= 0 else ""
        size = format_size(self._total)
        return f"{type(self).__name__}({size} of {self.memory_type} memory{device})"

    def _exhausted(self, size: int, alignment: int) -> OutOfMemoryError:
        free, largest = self._free.total, self._free.largest
        return OutOfMemoryError(
            f"the buffer has no {size} bytes ({format_size(size)}) at alignment {alignment}: "
            f"{free} of {self._total} bytes are free, {largest} in one range",
            requested=size,
            used=self._total - free,
            reserved=self._total,
            limit=self._total,
            largest_free=largest,
            provider=self.name,
        )
