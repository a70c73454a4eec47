"""The order of the rungs, what is taken instead, and what a trim tells."""

from __future__ import annotations

import copy
import json
import pickle

import pytest

from umfpy import Capability, InvalidArgument
from umfpy.pools.rungs import RUNGS, Trimmed, check_rung, choose


def test_the_gentlest_comes_first() -> None:
    assert RUNGS == ("dalloc", "purge_lazy", "decommit", "purge_force", "free")


@pytest.mark.parametrize("rung", RUNGS)
def test_a_rung_that_the_provider_has_is_taken(rung: str) -> None:
    everything = Capability.DALLOC | Capability.COMMIT | Capability.PURGE

    assert choose(rung, everything) == rung


@pytest.mark.parametrize("rung", RUNGS)
def test_where_it_has_none_memory_is_freed(rung: str) -> None:
    assert choose(rung, Capability.SPLIT | Capability.ZERO) == "free"


@pytest.mark.parametrize(
    ("rung", "has", "taken"),
    [
        ("dalloc", Capability.PURGE_LAZY, "purge_lazy"),
        ("dalloc", Capability.COMMIT | Capability.PURGE_FORCE, "decommit"),
        ("purge_lazy", Capability.DALLOC | Capability.COMMIT, "decommit"),
        ("purge_lazy", Capability.DALLOC | Capability.PURGE_FORCE, "purge_force"),
        ("decommit", Capability.DALLOC | Capability.PURGE, "purge_force"),
        ("decommit", Capability.DALLOC | Capability.PURGE_LAZY, "free"),
        ("purge_force", Capability.DALLOC | Capability.COMMIT | Capability.PURGE_LAZY, "free"),
    ],
)
def test_the_next_more_aggressive_one_is_taken(rung: str, has: Capability, taken: str) -> None:
    assert choose(rung, has) == taken


@pytest.mark.parametrize("wrong", ["purge", "", "FREE", None, 3, ["free"], Capability.COMMIT])
def test_what_is_no_rung_is_refused_by_name(wrong: object) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        check_rung(wrong)

    assert repr(wrong) in str(refusal.value)
    assert all(repr(rung) in str(refusal.value) for rung in RUNGS)


def test_what_went_is_a_number_that_says_how() -> None:
    went = Trimmed(4096, "decommit")

    assert (went, went + 1, hash(went)) == (4096, 4097, hash(4096))
    assert went.rung == "decommit"
    assert repr(went) == "Trimmed(4096, rung='decommit')"
    assert f"{went} {went:,}" == "4096 4,096"
    assert json.dumps({"bytes": went}) == '{"bytes": 4096}'


def test_nothing_went_by_no_rung() -> None:
    assert (Trimmed(), Trimmed().rung) == (0, None)
    assert repr(Trimmed()) == "Trimmed(0, rung=None)"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_it_is_pickled_and_copied_with_its_rung(protocol: int) -> None:
    went = Trimmed(1 << 40, "free")

    for same in (pickle.loads(pickle.dumps(went, protocol)), copy.deepcopy(went)):
        assert (same, same.rung, type(same)) == (went, "free", Trimmed)
