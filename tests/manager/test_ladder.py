"""Idle memory of every layout goes down a rung over every kind of provider, and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.ladders import KINDS, provider_of
from tests.manager.ladder import SHAPES, Scene
from tests.manager.support import MIB
from umfpy import Capability, InvalidArgument, Provider
from umfpy.pools.rungs import RUNGS

ON = (
    "host private",
    "host shared",
    "cuda device",
    "cuda vmm",
    "level_zero vmm",
    "coarse over host private",
)
LOWERING = [kind for kind in ON if KINDS[kind].lowers]
#: One that gives memory back in pages of its own, and one that does so in chunks.
BOTH_WAYS = ("host private", "cuda vmm")


@pytest.fixture
def provider(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Provider]:
    with provider_of(request.param, tmp_path) as made:
        yield made


@pytest.fixture
def scene(provider: Provider, shape: str) -> Iterator[Scene]:
    made = Scene(SHAPES[shape], provider)
    yield made
    made.end()


def over(*kinds: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("provider", "kind"), [(kind, kind) for kind in kinds], indirect=["provider"]
    )


every_shape = pytest.mark.parametrize("shape", SHAPES)


@every_shape
@pytest.mark.parametrize(
    ("provider", "kind", "rung"),
    [
        (kind, kind, rung)
        for kind in ON
        for rung in (RUNGS if KINDS[kind].lowers else ("dalloc", "free"))
    ],
    indirect=["provider"],
)
def test_idle_memory_goes_down(scene: Scene, shape: str, kind: str, rung: str) -> None:
    """The rung is taken, or the next one there is; what is live stays, and its numbers."""
    how = KINDS[kind].taken[RUNGS.index(rung)]
    before = scene.manager.memory_usage()
    assert before.bytes_hidden == before.bytes_unbacked == 0

    went = scene.manager.trim(rung=rung)

    scene.check()
    assert went.rung == how
    assert went >= 2 * scene.size - 2 * MIB
    after = scene.manager.memory_usage()
    gone = before.bytes_reserved - after.bytes_reserved
    hidden = went if how == "dalloc" else 0
    assert (gone, after.bytes_hidden) == (went if how in ("decommit", "free") else 0, hidden)
    if how != "free":
        assert after.bytes_unbacked == (went if how == "decommit" else 0)
    again = scene.manager.trim(rung=rung)
    assert again == (went if how in ("purge_lazy", "purge_force") else 0)
    scene.check()


@every_shape
@over(*LOWERING)
@pytest.mark.parametrize("rung", ["dalloc", "purge_lazy", "decommit", "purge_force"])
def test_what_went_down_comes_back(scene: Scene, shape: str, kind: str, rung: str) -> None:
    """Requests are served where the memory is, without a new page, and can use all of it."""
    before = scene.manager.stats()
    scene.manager.trim(rung=rung)
    went_to = scene.manager.memory_usage()

    scene.live += [scene.take(zero=True), scene.take()]

    scene.check()
    assert {one.ptr for one in scene.live[1:]} == set(scene.free)
    after = scene.manager.stats()
    assert (after.provider_allocs, after.provider_frees) == (
        before.provider_allocs,
        before.provider_frees,
    )
    assert scene.manager.memory_usage().bytes_hidden <= went_to.bytes_hidden
    assert all(pool.asleep_pages == 0 for pool in scene.manager.pool_usage())


@every_shape
@over(*BOTH_WAYS)
def test_down_the_whole_ladder(scene: Scene, shape: str, kind: str) -> None:
    """Each rung takes on what the one before left; the last leaves nothing."""
    hidden = scene.manager.trim(rung="dalloc")
    pages = [pool.pages for pool in scene.manager.pool_usage()]
    assert scene.manager.trim(rung="decommit") == hidden
    assert scene.manager.memory_usage().bytes_hidden == 0
    assert scene.manager.memory_usage().bytes_unbacked == hidden
    assert [pool.pages for pool in scene.manager.pool_usage()] == pages
    went = scene.manager.trim()
    assert (went, went.rung) == (0, "free"), "addresses alone"
    scene.check()
    assert sum(pool.pages for pool in scene.manager.pool_usage()) == 1


@every_shape
@over(*BOTH_WAYS)
def test_as_much_as_it_is_told_to_stays_ready(scene: Scene, shape: str, kind: str) -> None:
    ready = scene.manager.memory_usage().bytes_reserved
    assert scene.manager.trim(ready, rung="dalloc") == 0
    assert scene.manager.trim(f"{ready}", rung="decommit") == 0
    went = scene.manager.trim(ready - scene.size - 8 * MIB, rung="dalloc")
    assert scene.size - 2 * MIB <= went <= scene.size + 8 * MIB
    scene.check()
    # What is hidden is not ready, and goes first.
    assert scene.manager.trim(ready, rung="decommit") == went
    scene.check()


@every_shape
@over(*BOTH_WAYS)
def test_cleanup_takes_what_sleeps_as_well(scene: Scene, shape: str, kind: str) -> None:
    scene.manager.trim(rung="dalloc")
    hidden = scene.manager.memory_usage().bytes_hidden
    released = scene.manager.cleanup(explicit=True)
    usage = scene.manager.memory_usage()
    assert sum(pool.pages for pool in scene.manager.pool_usage()) == 1
    assert released + usage.bytes_hidden == hidden
    scene.check()


@over(*BOTH_WAYS)
@pytest.mark.parametrize("shape", [name for name, shape in SHAPES.items() if shape.parts])
def test_free_parts_of_a_page_go_down(scene: Scene, shape: str, kind: str) -> None:
    """Around a live slice, and come back for as much as a request needs."""
    scene.manager.trim()
    scene.check()
    page = scene.manager.memory_usage()
    reserving = Capability.RESERVE in scene.provider.capabilities
    assert (page.bytes_unbacked > 0) == reserving
    scene.manager.trim(rung="decommit")
    scene.check()
    asleep = scene.manager.memory_usage().bytes_unbacked
    assert asleep > 0

    scene.live.append(scene.take(100 * 1024))

    scene.check()
    assert scene.manager.stats().provider_allocs == 3
    assert scene.manager.memory_usage().bytes_unbacked <= asleep


@over("host private")
@pytest.mark.parametrize("shape", ["sliced"])
@pytest.mark.parametrize("wrong", ["lower", None, 2])
def test_what_is_no_rung_changes_nothing(
    scene: Scene, shape: str, kind: str, wrong: object
) -> None:
    before = scene.manager.stats()
    with pytest.raises(InvalidArgument, match="'purge_lazy'"):
        scene.manager.trim(rung=wrong)
    assert scene.manager.stats() == before
