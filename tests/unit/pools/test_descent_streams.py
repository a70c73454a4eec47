"""Nothing goes down that a stream may still be using."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.fakes.laddered import LadderedProvider, agree
from umfpy import Growth, Pool
from umfpy.core.extents import LEAVING, SAFE
from umfpy.pools.rungs import RUNGS

KIB = 1 << 10
A, B = 101, 102
GENTLE = RUNGS[:-1]


@pytest.fixture
def provider() -> LadderedProvider:
    return LadderedProvider()


@pytest.fixture
def pool(provider: LadderedProvider) -> Iterator[Pool]:
    """A pool of extents of 256 KiB, with something live in the first."""
    made = Pool(provider, growth=Growth(256 * KIB, 256 * KIB))
    live = made.malloc(4 * KIB, stream=A)
    yield made
    agree(made, provider)
    made.free(live)
    made.close()
    assert not provider.live


def waits(provider: LadderedProvider) -> int:
    return provider.counts["synchronize"]


@pytest.mark.parametrize("rung", GENTLE)
def test_a_descent_waits_once(pool: Pool, provider: LadderedProvider, rung: str) -> None:
    """After the memory has left: until then it could still be given out."""
    pool.free(pool.malloc(64 * KIB, stream=A))
    seen = []
    provider.on_synchronize = lambda: seen.append(
        {tag for _, _, used, tag in pool.map.blocks() if not used}
    )

    assert pool.trim(rung=rung) == 252 * KIB

    assert seen == [{LEAVING}]
    calls = [str(call[0]) for call in provider.calls]
    assert calls.index("synchronize") < calls.index(rung)


@pytest.mark.parametrize("rung", RUNGS)
def test_where_nothing_goes_nobody_waits(pool: Pool, provider: LadderedProvider, rung: str) -> None:
    assert pool.trim(256 * KIB, rung=rung) == 0
    assert waits(provider) == 0


@pytest.mark.parametrize("rung", GENTLE)
def test_what_several_streams_freed_goes(pool: Pool, provider: LadderedProvider, rung: str) -> None:
    blocks = [pool.malloc(64 * KIB, stream=stream) for stream in (A, B, A)]
    for ptr, stream in zip(blocks, (A, B, B), strict=True):
        pool.free(ptr, stream=stream)

    assert len(pool.map.extents) == 2, "the second stream has one of its own"
    assert pool.trim(rung=rung) == (252 + 256) * KIB
    assert waits(provider) == 2, "one to join what they freed, one when it has left"


@pytest.mark.parametrize("rung", GENTLE)
@pytest.mark.parametrize("stream", [A, B])
def test_what_is_freed_during_the_wait_stays(
    pool: Pool, provider: LadderedProvider, rung: str, stream: int
) -> None:
    """The device may have been asked for work on it after the wait had begun."""
    early, late = pool.malloc(64 * KIB, stream=A), pool.malloc(64 * KIB, stream=A)
    other = pool.malloc(4 * KIB, stream=B)
    pool.free(early)
    freed: list[int] = []

    def free_late() -> None:
        if waits(provider) == 2:  # the second wait: what is to go has been chosen
            pool.free(late, stream=stream)
            freed.append(late)

    provider.on_synchronize = free_late
    went = pool.trim(rung=rung)

    assert freed == [late]
    ranges = {(call[1], call[2]) for call in provider.calls if call[0] == rung}
    assert all(ptr + size <= late or late + 64 * KIB <= ptr for ptr, size in ranges)
    assert went == (252 - 64 + 252) * KIB
    assert pool.trim(rung=rung) >= 64 * KIB
    pool.free(other)


@pytest.mark.parametrize("rung", ["dalloc", "decommit"])
def test_what_comes_back_is_every_streams(
    pool: Pool, provider: LadderedProvider, rung: str
) -> None:
    pool.free(pool.malloc(64 * KIB, stream=A))
    pool.trim(rung=rung)
    before = waits(provider)

    ptr = pool.malloc(100 * KIB, stream=B)

    assert waits(provider) == before
    assert provider.state(ptr) == SAFE
    pool.free(ptr)
