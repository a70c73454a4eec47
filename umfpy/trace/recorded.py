"""An allocation whose end is written down."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from umfpy.core.pool import Allocation, BasePool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream


class RecordedAllocation:
    """Stands for an allocation of a pool that is recorded; freed by `free`, or when dropped.

    Parameters
    ----------
    allocation
        Of the pool; whoever else holds it may not free it.
    on_free
        Called with the stream once the memory is free.
    """

    __slots__ = ("_allocation", "_on_free")

    def __init__(self, allocation: Allocation, on_free: Callable[[Stream], None]) -> None:
        self._allocation = allocation
        self._on_free = on_free

    @property
    def ptr(self) -> int:
        return self._allocation.ptr

    @property
    def size(self) -> int:
        return self._allocation.size

    @property
    def stream(self) -> int:
        return self._allocation.stream

    @property
    def pool(self) -> BasePool:
        return self._allocation.pool

    def free(self, stream: Stream = None) -> None:
        """As `umfpy.core.pool.Allocation.free`."""
        self._allocation.free(stream)
        self._on_free(stream)

    def __enter__(self) -> RecordedAllocation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not self._allocation.freed:
            self.free()

    def __del__(self) -> None:
        # The allocation goes with this, and frees itself.
        if not self._allocation.freed:
            self._on_free(None)

    def __repr__(self) -> str:
        return f"RecordedAllocation({self._allocation!r})"
