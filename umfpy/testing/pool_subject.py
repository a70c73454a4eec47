"""The pool under test, with what the checks need around it."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from umfpy.errors import UmfpyError
from umfpy.pools.base import ProviderPool
from umfpy.pools.nested import PoolProvider
from umfpy.provider import Capability, Provider
from umfpy.testing.subject import Options, Skipped, Subject, expect

if TYPE_CHECKING:
    from umfpy.core.pool import Allocation

#: What makes a pool, on a provider of its own.
PoolFactory = Callable[[], ProviderPool]


@dataclass(frozen=True)
class PoolOptions:
    """How to check: see `check_pool`."""

    live_count: Callable[[ProviderPool], int] | None = None
    process_setup: Callable[[], object] | None = None
    largest_alignment: int = 4 << 20
    threads: int = 8
    streams: tuple[int, int] = (1, 2)


class PoolSubject(Subject):
    """A fresh pool, and the memory that a check takes from it; freed at the end.

    ``alloc`` and ``free`` are the pool's `malloc` and `free`; what `Subject` does with contents
    holds for memory of pools as well.

    Attributes
    ----------
    pool, provider
        The pool, and what it stands on.
    root
        The provider at the bottom, where the memory comes from.
    """

    def __init__(self, pool: ProviderPool, options: PoolOptions) -> None:
        super().__init__(
            pool.provider,
            Options(largest_alignment=options.largest_alignment, threads=options.threads),
        )
        self.pool = pool
        self.pool_options = options
        self.granule = pool.provider.granule
        self.root = root_of(pool.provider)
        self.native_before = self.native_count()
        self._owned: list[Allocation] = []

    def abilities(self) -> Capability:
        """Return what decides which checks apply: what the pool's memory can do."""
        return abilities(self.pool)

    def alloc(
        self, size: int, alignment: int = 0, stream: int | None = None, zero: bool = False
    ) -> int:
        """Return the address of `size` bytes; what is left at the end of the check is freed."""
        ptr = self.pool.malloc(size, alignment, stream, zero)
        expect(
            isinstance(ptr, int) and ptr > 0, "malloc returns an address above 0, an int", repr(ptr)
        )
        self.adopt(ptr, size)
        return ptr

    def allocate(
        self, size: int, alignment: int = 0, stream: int | None = None, zero: bool = False
    ) -> Allocation:
        """Return an `Allocation`; freed at the end of the check if it is live then."""
        allocation = self.pool.allocate(size, alignment, stream, zero)
        self._owned.append(allocation)
        return allocation

    def forget(self) -> None:
        """Keep no `Allocation` alive any more."""
        self._owned.clear()

    def free(self, ptr: int) -> None:
        """Free what `alloc` returned."""
        self.pool.free(ptr, self.disown(ptr))

    # What a refusal must leave as it was.

    def live(self) -> tuple[int, ...]:
        """Return the counters of what is live; memory that idles may come and go."""
        now = self.pool.stats()
        return (
            now.live_allocations,
            now.requested_bytes,
            now.used_bytes,
            now.allocations,
            now.frees,
        )

    @contextlib.contextmanager
    def unchanged(self, what: str) -> Iterator[None]:
        """Raise Broken if the body leaves other counters, or a pool whose invariants are broken."""
        before = self.live()
        yield
        after = self.live()
        expect(after == before, f"{what}: nothing changed, {before}", after)
        self.pool.check("full")

    # What is below.

    def native_count(self) -> int | None:
        """Return how many native allocations there are, if anything says so."""
        if self.pool_options.live_count is not None:
            return self.pool_options.live_count(self.pool)
        count = getattr(self.root, "live_count", None)
        return int(count()) if callable(count) else None

    def settle(self) -> None:
        """Have every pool and coarse provider below give back what is idle."""
        provider: Provider | None = self.pool.provider
        while provider is not None:
            source = provider.pool if isinstance(provider, PoolProvider) else provider
            trim = getattr(source, "trim", None)
            if callable(trim):
                trim()
            provider = getattr(provider, "upstream", None)

    @contextlib.contextmanager
    def counting_waits(self) -> Iterator[Callable[[], int]]:
        """Yield what says how often the device was waited for since."""
        waits: list[None] = []
        wait = self.root.synchronize

        def counted() -> None:
            wait()
            waits.append(None)

        try:
            self.root.synchronize = counted  # type: ignore[method-assign]
        except AttributeError:
            raise Skipped("the provider's synchronize cannot be watched") from None
        try:
            yield lambda: len(waits)
        finally:
            del self.root.synchronize

    def finish(self) -> None:
        """Free what is left and close the pool; a check has failed already if that cannot."""
        for ptr, size in list(self._live.items()):
            with contextlib.suppress(UmfpyError):
                self.pool.free(ptr, size)
        for allocation in self._owned:
            with contextlib.suppress(UmfpyError):
                if not allocation.freed:
                    allocation.free()
        self._owned.clear()
        with warnings.catch_warnings(), contextlib.suppress(UmfpyError):
            warnings.simplefilter("ignore", ResourceWarning)
            self.pool.close()


def root_of(provider: Provider) -> Provider:
    """Return the provider below all pools and coarse providers."""
    while True:
        upstream = getattr(provider, "upstream", None)
        if not isinstance(upstream, Provider):
            return provider
        provider = upstream


def abilities(pool: ProviderPool) -> Capability:
    """Return what a pool's memory can do: sharing is a matter of the provider at the bottom."""
    own = pool.provider.capabilities & ~Capability.IPC
    return own | (root_of(pool.provider).capabilities & Capability.IPC)
