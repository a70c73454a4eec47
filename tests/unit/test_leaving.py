"""Who is asked to give back at the end, in which order, and what becomes of errors."""

from __future__ import annotations

import gc

import pytest

from umfpy import DriverError, leaving


class Keeper:
    """Says when it is asked."""

    def __init__(self, name: str, asked: list[str], error: Exception | None = None) -> None:
        self.name = name
        self.asked = asked
        self.error = error
        leaving.enter(self, Keeper.give_back)

    def give_back(self) -> None:
        self.asked.append(self.name)
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def _nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaving, "_holders", {})
    monkeypatch.setattr(leaving, "_told_by", {})


def test_who_was_made_last_is_asked_first() -> None:
    asked: list[str] = []
    keepers = [Keeper(name, asked) for name in "abc"]
    leaving.give_all_back()
    assert asked == ["c", "b", "a"]
    leaving.give_all_back()
    assert asked == ["c", "b", "a"] * 2, "they live on"
    assert len(keepers) == 3


def test_who_is_gone_is_not_asked() -> None:
    asked: list[str] = []
    first, second = Keeper("first", asked), Keeper("second", asked)
    del first
    gc.collect()
    leaving.give_all_back()
    assert asked == ["second"]
    assert second.asked is asked


def test_what_a_driver_refuses_is_nobodys_concern() -> None:
    asked: list[str] = []
    refused = DriverError("cuMemFree_v2", 4, "CUDA_ERROR_DEINITIALIZED", "gone")
    keepers = [Keeper("a", asked), Keeper("b", asked, refused), Keeper("c", asked)]
    leaving.give_all_back()
    assert asked == [keeper.name for keeper in reversed(keepers)]


def test_any_other_error_comes_out_after_all_were_asked() -> None:
    asked: list[str] = []
    keepers = [Keeper("a", asked), Keeper("b", asked, ZeroDivisionError()), Keeper("c", asked)]
    with pytest.raises(ZeroDivisionError):
        leaving.give_all_back()
    assert asked == [keeper.name for keeper in reversed(keepers)]


def test_who_comes_meanwhile_is_not_waited_for() -> None:
    asked: list[str] = []
    made: list[Keeper] = []

    class Maker(Keeper):
        def give_back(self) -> None:
            super().give_back()
            made.append(Keeper("late", asked))

    maker = Maker("maker", asked)
    leaving.enter(maker, Maker.give_back)
    leaving.give_all_back()
    assert "late" not in asked


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({}, False),
        ({"UMFPY_EMULATE_CUDA": "memory=1;report=1"}, True),
        ({"UMFPY_EMULATE_LEVEL_ZERO": "report=1;memory=1"}, True),
        ({"UMFPY_EMULATE_CUDA": "memory=1;report=0"}, False),
        ({"UMFPY_EMULATE_CUDA": "memory=1;report=10"}, False),
        ({"UMFPY_TRACES": "report=1"}, False),
    ],
)
def test_a_report_is_asked_for_by_the_environment(environment: dict[str, str], told: bool) -> None:
    assert leaving.is_told(environment) is told


def test_or_by_the_driver_that_was_loaded_and_only_while_that_tells() -> None:
    leaving.expect_report("CUDA", True)
    leaving.expect_report("Level Zero", False)
    assert leaving.is_told({})
    leaving.expect_report("CUDA", False)
    assert not leaving.is_told({})
