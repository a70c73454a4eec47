"""Memory that a CUDA driver gives at addresses of its own choice, aligned as it is asked for."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from umfpy.errors import OutOfMemoryError
from umfpy.providers.cuda.vmm_base import CudaDeviceProvider
from umfpy.providers.host.arguments import check_request, round_up
from umfpy.providers.host.pieces import Piece

#: What the driver cuts small allocations out of, and aligns the large ones to.  Not promised, so
#: that every address is looked at; it only says when asking for exactly `size` is worth a try.
LIKELY_ALIGNMENT = 2 << 20


class NativeProvider(CudaDeviceProvider):
    """Hands out whole allocations of the driver's, or an aligned address inside a larger one."""

    @abstractmethod
    def _take(self, size: int, **how: Any) -> int:
        """Return the address of what the driver gives for `size` bytes; the subclass says how."""

    @abstractmethod
    def _abandon(self, base: int) -> None:
        """Give back what turned out to lie at the wrong address; later if it cannot be now."""

    def _alloc(self, size: int, alignment: int, **how: Any) -> int:
        """Return `size` bytes as `alloc` does; `how` is for `_take`."""
        size, alignment = check_request(size, alignment, self.name)
        try:
            with self._pieces.coming():
                self._check_open()
                try:
                    base, ptr = self._take_aligned(
                        size, max(alignment, self.granule), partial(self._take, **how)
                    )
                except OutOfMemoryError as error:
                    raise self._out_of_memory(size, error) from error
                self._pieces.add(ptr, Piece(size, base))
        finally:
            self._close_if_unused()
        return ptr

    def _take_aligned(
        self, size: int, alignment: int, take: Callable[[int], int]
    ) -> tuple[int, int]:
        """Return the driver's address and the aligned one in it."""
        if alignment <= self.granule or alignment <= LIKELY_ALIGNMENT <= size:
            base = take(size)
            if not base % alignment:
                return base, base
            self._abandon(base)
        base = take(size + alignment)
        return base, round_up(base, alignment)
