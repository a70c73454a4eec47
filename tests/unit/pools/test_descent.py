"""Memory that goes down a rung and stays in its pool, over every kind of provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.ladders import KINDS, LOWERING, pattern, provider_of, read, write
from umfpy import Capability, Growth, InvalidArgument, Pool, Provider
from umfpy.core.extents import HIDDEN, SAFE, UNBACKED
from umfpy.pools.rungs import RUNGS, Trimmed

KIB, MIB = 1 << 10, 1 << 20
GROWTH = Growth(16 * MIB, 16 * MIB)
PAGE = 4096
STATES = {"dalloc": HIDDEN, "decommit": UNBACKED, "free": UNBACKED}


@pytest.fixture
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    with provider_of(request.param, tmp_path) as made:
        yield made


class Scene:
    """A pool with two live allocations, and free memory between and behind them.

    No end of an allocation is one at which the provider could cut.
    """

    def __init__(self, provider: Provider) -> None:
        self.provider = provider
        self.pool = Pool(provider, growth=GROWTH)
        self.low = self.pool.malloc(300_000)
        self.middle = self.pool.malloc(9 * MIB + 700)
        self.high = self.pool.malloc(200_000)
        self.live = {self.low: 300_000, self.high: 200_000}
        for ptr, size in self.live.items():
            write(provider, ptr, pattern(ptr, size))
        self.old = pattern(self.middle, 9 * MIB + 700)
        write(provider, self.middle, self.old)
        self.pool.free(self.middle)

    def check(self) -> None:
        """The pool is sound, and what is live has every byte."""
        self.pool.check("full")
        for ptr, size in self.live.items():
            assert read(self.provider, ptr, size) == pattern(ptr, size)

    def trim(self, rung: str, keep: int = 0) -> Trimmed:
        """Trim, and compare what is said with the counters."""
        before = self.pool.stats()
        went = self.pool.trim(keep, rung=rung)
        now = self.pool.stats()
        assert now.used_bytes == before.used_bytes
        hidden = now.hidden_bytes - before.hidden_bytes
        gone = before.reserved_bytes - now.reserved_bytes
        if went.rung == "dalloc":
            assert (hidden, gone) == (went, 0)
        elif went.rung in ("purge_lazy", "purge_force"):
            assert (now.hidden_bytes, gone) == (0, 0)
        else:
            assert gone == went
            assert now.hidden_bytes == 0 or went.rung is None
        assert now.free_bytes == now.reserved_bytes - now.used_bytes - now.hidden_bytes
        self.check()
        return went

    def left(self) -> list[tuple[int, int]]:
        """What is free and ready, and could still be cut out by the provider."""
        unit = self.provider.granularity(16 * MIB)
        found = []
        for start, size in self.pool.map.free_ranges(SAFE):
            low, high = -(-start // unit) * unit, (start + size) // unit * unit
            if low < high and Capability.RESERVE in self.provider.capabilities:
                found += [(c.ptr, c.size) for c in self.provider.chunks(low, high - low)]
            elif low < high:
                found.append((low, high - low))
        return found

    def pieces(self, state: int) -> list[tuple[int, int]]:
        """The provider's pieces that are free memory in this state."""
        return [
            piece
            for extent in self.pool.map.extents.values()
            for piece in self.pool._cuts.pieces(extent)
            if any(
                start <= piece[0] and sum(piece) <= start + size
                for start, size in self.pool.map.free_ranges(state)
            )
        ]

    def end(self) -> None:
        for ptr in self.live:
            self.pool.free(ptr)
        self.live.clear()
        self.pool.check("full")
        self.pool.close()
        self.pool.check("full")
        now = self.pool.stats()
        assert (now.reserved_bytes, now.unbacked_bytes, now.extents) == (0, 0, 0)
        live_count = getattr(self.provider, "live_count", None)
        assert live_count is None or live_count() == 0


@pytest.fixture
def scene(provider: Provider) -> Iterator[Scene]:
    made = Scene(provider)
    yield made
    made.end()


def taken(kind: str, rung: str) -> str:
    return KINDS[kind].taken[RUNGS.index(rung)]


EVERY = [(kind, rung) for kind in KINDS for rung in RUNGS]
LOWER = [(kind, rung) for kind in LOWERING for rung in RUNGS]


def over(cases: list[tuple[str, str]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("provider", "kind", "rung"),
        [(kind, kind, rung) for kind, rung in cases],
        indirect=["provider"],
        ids=[f"{kind}-{rung}" for kind, rung in cases],
    )


@over(EVERY)
def test_beside_live_memory(scene: Scene, kind: str, rung: str) -> None:
    """The rung is taken, or the next one; all that can be cut out goes, and nothing else."""
    how = taken(kind, rung)
    reserving = Capability.RESERVE in scene.provider.capabilities

    went = scene.trim(rung)

    if how == "free" and not reserving:
        assert (went, went.rung) == (0, None)
        return
    assert went.rung == how
    assert went >= 4 * MIB
    if how in STATES:
        assert scene.left() == []
        assert sum(size for _, size in scene.pool.map.free_ranges(STATES[how])) == went


@over(LOWER)
def test_what_is_read_afterwards(scene: Scene, kind: str, rung: str) -> None:
    went = scene.trim(rung)

    if went.rung in ("purge_lazy", "purge_force"):
        seen = read(scene.provider, scene.middle, len(scene.old))
        for at in range(0, len(seen), PAGE):
            page, old = seen[at : at + PAGE], scene.old[at : at + PAGE]
            assert page in (old, bytes(len(page))) or went.rung == "purge_force"
        if went.rung == "purge_force":
            cut = -scene.middle % PAGE
            assert seen.count(bytes(PAGE)) > 0
            assert seen[:cut] == scene.old[:cut], "beside what could be cut out"
    elif went:
        state = STATES[went.rung or ""]
        pieces = scene.pieces(state)
        assert pieces
        for ptr, size in pieces:
            scene.provider.commit(ptr, size)
            low, high = max(ptr, scene.middle), min(ptr + size, scene.middle + len(scene.old))
            wanted = scene.old[low - scene.middle : high - scene.middle]
            if state == UNBACKED:
                low, high, wanted = ptr, ptr + size, bytes(size)
            if low < high:
                assert read(scene.provider, low, high - low) == wanted
            (scene.provider.dalloc if state == HIDDEN else scene.provider.decommit)(ptr, size)
    scene.check()


@over(LOWER)
def test_as_much_as_it_is_told_to_stays_ready(scene: Scene, kind: str, rung: str) -> None:
    before = scene.pool.stats()
    ready = before.reserved_bytes
    unit = scene.provider.granularity(16 * MIB)
    if Capability.RESERVE in scene.provider.capabilities:
        unit = max(c.size for c in scene.provider.chunks(min(scene.live) // unit * unit, 8 * MIB))

    assert scene.trim(rung, ready) == 0
    assert scene.trim(rung, ready + MIB) == 0
    keep = ready - 5 * MIB - 1
    went = scene.trim(rung, keep)

    if went.rung is None:
        assert taken(kind, rung) == "free"
        return
    assert 5 * MIB + 1 - 2 * unit < went <= 5 * MIB + 1
    if went.rung in STATES:
        now = scene.pool.stats()
        assert now.reserved_bytes - now.hidden_bytes >= keep


@pytest.mark.parametrize("provider", LOWERING, indirect=True)
@pytest.mark.parametrize("rung", ["decommit", "purge_force", "free"])
def test_what_is_hidden_is_not_ready(scene: Scene, rung: str) -> None:
    """It goes whatever is to be kept, and makes no room for more to go."""
    hidden = scene.trim("dalloc", 11 * MIB)
    assert hidden >= 2 * MIB
    ready = scene.pool.stats().reserved_bytes - hidden

    went = scene.trim(rung, ready)

    native = Capability.RESERVE in scene.provider.capabilities or rung != "free"
    assert went == (hidden if native else 0)
    now = scene.pool.stats()
    assert now.hidden_bytes == (0 if native else hidden)


@pytest.mark.parametrize("provider", LOWERING, indirect=True)
def test_down_the_whole_ladder(scene: Scene) -> None:
    """Each rung takes on what the one before left, the hidden memory first."""
    hidden = scene.trim("dalloc")
    assert scene.trim("dalloc") == 0, "it is hidden already"
    lazy = scene.trim("purge_lazy")
    assert lazy >= hidden
    if lazy.rung == "purge_lazy":
        assert scene.trim("decommit") >= hidden
    now = scene.pool.stats()
    assert now.hidden_bytes == 0
    assert now.unbacked_bytes >= hidden
    assert scene.trim("decommit") == 0, "it has gone already"
    assert scene.trim("purge_force") == 0


@over(LOWER)
def test_an_extent_in_several_states_goes_back(scene: Scene, kind: str, rung: str) -> None:
    scene.trim(rung)
    for ptr in scene.live:
        scene.pool.free(ptr)
    scene.live.clear()
    held = scene.pool.stats().reserved_bytes

    went = scene.trim("free")

    assert (went, went.rung) == (held, "free")
    assert scene.pool.map.extents == {}
    assert scene.pool.map.blocks() == []


@pytest.mark.parametrize("provider", LOWERING, indirect=True)
def test_a_pool_that_is_closed_around_live_memory(scene: Scene) -> None:
    """Where addresses and memory are apart, what lies around it does not wait for it."""
    before = scene.pool.stats()

    with pytest.warns(ResourceWarning, match="2 live allocations"):
        scene.pool.close()

    scene.check()
    held = scene.pool.stats().reserved_bytes
    if Capability.RESERVE in scene.provider.capabilities:
        assert scene.left() == []
        assert held <= before.reserved_bytes - 4 * MIB
    else:
        assert held == before.reserved_bytes
    scene.pool.free(scene.high)
    del scene.live[scene.high]
    scene.check()
    if Capability.RESERVE in scene.provider.capabilities:
        assert scene.pool.stats().reserved_bytes < held


@over(LOWER)
def test_memory_that_went_down_is_not_given_out_as_it_is(
    scene: Scene, kind: str, rung: str
) -> None:
    """Requests are served, from it or from elsewhere, and what they get can be used."""
    scene.trim(rung)

    for size in (100, 3 * MIB, 8 * MIB, 100_000):
        ptr = scene.pool.malloc(size)
        scene.live[ptr] = size
        write(scene.provider, ptr, pattern(ptr, size))
        scene.check()
    zeros = scene.pool.malloc(5 * MIB, zero=True)
    assert read(scene.provider, zeros, 5 * MIB) == bytes(5 * MIB)
    scene.pool.free(zeros)
    scene.check()


@pytest.mark.parametrize("provider", ["host private"], indirect=True)
@pytest.mark.parametrize("wrong", ["lower", None, 2])
def test_what_is_no_rung_changes_nothing(scene: Scene, wrong: object) -> None:
    before = scene.pool.stats(), scene.pool.map.blocks()

    with pytest.raises(InvalidArgument, match="'purge_lazy'"):
        scene.pool.trim(rung=wrong)

    assert (scene.pool.stats(), scene.pool.map.blocks()) == before
