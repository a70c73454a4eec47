"""The provider fails its nth call, for all n: what was live stays live, and nothing leaks."""

from __future__ import annotations

import pytest

from tests.fakes.provider import FakeFailure, FakeProvider
from umfpy import Capability, CoarseProvider, Growth, OutOfMemoryError, Pool, ProxyPool
from umfpy.pools.base import ProviderPool

KIB = 1 << 10
GROWTH = Growth(64 * KIB, 64 * KIB)

SHAPES = {
    "pool": lambda provider: [Pool(provider, growth=GROWTH)],
    "proxy": lambda provider: [ProxyPool(provider)],
    "pool on coarse": lambda provider: [Pool(CoarseProvider(provider), growth=GROWTH)],
    "proxy on coarse": lambda provider: [ProxyPool(CoarseProvider(provider))],
    "three pools": lambda provider: _tower(provider),
}


def _tower(provider: FakeProvider) -> list[ProviderPool]:
    first = Pool(provider, growth=GROWTH)
    second = Pool(first, growth=GROWTH)
    return [first, second, Pool(second, growth=GROWTH)]


class Script:
    """A fixed sequence of calls, each of which may fail and must then have changed nothing."""

    def __init__(self, shape: str, error: BaseException) -> None:
        self.provider = FakeProvider(capabilities=Capability.STREAMS | Capability.ZERO)
        self.error = error
        self.pools = SHAPES[shape](self.provider)
        self.held: list[tuple[int, int]] = []

    @property
    def pool(self) -> ProviderPool:
        return self.pools[-1]

    def live(self) -> object:
        now = self.pool.stats()
        used = [(start, span) for start, span, used, _ in self.pool.map.blocks() if used]
        return used, now.requested_bytes, now.used_bytes, now.allocations - now.frees

    def attempt(self, call, *arguments: object):
        before = self.live()
        try:
            return call(*arguments)
        except (FakeFailure, OutOfMemoryError):
            assert self.live() == before
            return None
        finally:
            for pool in self.pools:
                pool.check("full")

    def take(self, size: int, stream: int, *, zero: bool = False) -> None:
        ptr = self.attempt(self.pool.malloc, size, 0, stream, zero)
        if ptr is not None:
            self.held.append((ptr, size))

    def give(self, stream: int | None) -> None:
        if self.held:
            ptr, size = self.held[0]
            before = self.live()
            self.attempt(self.pool.free, ptr, size, stream)
            if self.live() != before:
                self.held.pop(0)

    def run(self) -> None:
        for size, stream in ((100, 1), (64 * KIB, 1), (200 * KIB, 2), (0, 2), (5 * KIB, 1)):
            self.take(size, stream)
        self.take(3 * KIB, 1, zero=True)
        self.give(None)
        self.give(2)
        self.attempt(self.pool.synchronize)
        self.take(300 * KIB, 3)
        self.attempt(self.pool.trim)
        while self.held:
            self.give(1)
        self.attempt(self.pool.trim)

    def end(self) -> None:
        """Without further failures everything goes back."""
        self.provider.recover()
        for pool in reversed(self.pools):
            pool.close()
            pool.check("full")
            assert pool.stats().reserved_bytes == 0
        source = self.pools[0].provider
        if isinstance(source, CoarseProvider):
            source.check("full")
            source.close()
        assert not self.provider.live


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("error", [FakeFailure("as told"), OutOfMemoryError("as told")])
def test_every_call_of_the_script_may_fail(shape: str, error: BaseException) -> None:
    # given
    whole = Script(shape, error)
    whole.run()
    whole.end()
    calls = len(whole.provider.calls)
    assert calls >= 10

    for nth in range(1, calls + 1):
        # when
        script = Script(shape, error)
        script.provider.fail(nth, error)
        script.run()

        # then
        script.end()


def test_an_extent_that_the_map_refuses_goes_back(provider: FakeProvider) -> None:
    pool = Pool(provider)
    provider.alloc = lambda size, alignment=0: (1 << 64) - 512  # reaches beyond the address space
    freed = []
    provider.free = lambda ptr, size: freed.append(ptr)

    with pytest.raises(ValueError, match="beyond"):
        pool.malloc(100)

    assert freed == [(1 << 64) - 512]
    pool.check()
