"""Pools that pass on the stream on which their memory is freed."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, SupportsIndex

from umfpy.pools.base import ProviderPool

if TYPE_CHECKING:
    from umfpy.core.pool import Stream
    from umfpy.provider import Provider


class _Freeing(threading.local):
    """The call of `free` that a thread is in."""

    stream: Stream = None


class StreamPassingPool(ProviderPool):
    """A pool whose `_discard` finds in ``_freeing.stream`` what its caller's `free` was told.

    None where nothing was said, as when an allocation is dropped.
    """

    def __init__(
        self, provider: Provider | ProviderPool, *, name: str, direct: bool = True
    ) -> None:
        super().__init__(provider, name=name, direct=direct)
        self._freeing = _Freeing()

    def free(
        self, ptr: int | None, size: SupportsIndex | None = None, stream: Stream = None
    ) -> None:
        """Free what `malloc` returned; as `Pool.free`."""
        self._freeing.stream = stream
        try:
            super().free(ptr, size, stream)
        finally:
            self._freeing.stream = None
