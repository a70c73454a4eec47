"""What callers pass is checked where it comes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from umfpy import Idle, InvalidArgument
from umfpy.arguments import (
    check_callable,
    check_choice,
    check_device,
    check_flag,
    check_items,
    check_kind,
    check_number,
    check_path,
)


class Index:
    """A whole number of somebody else's, such as those of NumPy."""

    def __index__(self) -> int:
        return 3


class Many:
    """What looks like a number and is none, such as an array of several."""

    def __index__(self) -> int:
        raise TypeError("only arrays of one element are numbers")


@pytest.mark.parametrize("flag", [True, False])
def test_flags(flag: bool) -> None:
    assert check_flag(flag, "shared") is flag


@pytest.mark.parametrize("wrong", ["no", "", 0, 1, None, [], b"x"])
def test_what_counts_as_true_or_false_is_no_flag(wrong: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_flag(wrong, "shared")
    assert str(caught.value) == f"shared must be True or False, not {wrong!r}"


def test_numbers_are_anybodys() -> None:
    number = check_number(Index(), "threads", least=1, most=3)
    assert (number, type(number)) == (3, int)
    assert check_number(-1, "offset", least=None) == -1


@pytest.mark.parametrize("wrong", ["4", 4.0, None, True, [4], b"4", Many()])
def test_what_is_no_number(wrong: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_number(wrong, "threads")
    assert str(caught.value) == f"threads must be a whole number from 0 on, not {wrong!r}"


@pytest.mark.parametrize(
    ("bounds", "words"),
    [
        ({"least": 5}, "from 5 on"),
        ({"most": 3}, "from 0 to 3"),
        ({"least": None, "most": 3}, "up to 3"),
    ],
)
def test_numbers_have_bounds(bounds: dict[str, int | None], words: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^n must be a whole number {words}, not 4$"):
        check_number(4, "n", **bounds)


@pytest.mark.parametrize("wrong", ["0", 0.0, None, False])
def test_devices_are_ordinals(wrong: object) -> None:
    assert check_device(Index()) == 3
    with pytest.raises(InvalidArgument, match="a whole number such as 0, not ") as caught:
        check_device(wrong, "peer")
    assert str(caught.value).startswith("peer must be the ordinal of a device")
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("wrong", ["c", None, ["a"], {}, 0])
def test_choices_are_listed(wrong: object) -> None:
    assert check_choice("a", {"a": 1, "b": 2}, "mode") == "a"
    with pytest.raises(InvalidArgument) as caught:
        check_choice(wrong, ["a", "b"], "mode")
    assert str(caught.value) == f"mode must be one of 'a', 'b', not {wrong!r}"


def test_kinds_are_named_as_callers_write_them() -> None:
    assert check_kind("x", str, "name", "text") == "x"
    with pytest.raises(InvalidArgument, match=r"^idle must be a umfpy\.Idle, not 5$"):
        check_kind(5, Idle, "idle", "a umfpy.Idle")


def test_what_is_to_be_called() -> None:
    assert check_callable(len, "live_count", "counts") is len
    with pytest.raises(
        InvalidArgument, match=r"^live_count must be a callable that counts, not 5$"
    ):
        check_callable(5, "live_count", "counts")


@pytest.mark.parametrize("wrong", ["ab", b"ab", 5, None])
def test_a_list_is_no_text(wrong: object) -> None:
    assert check_items(iter("ab"), "checks", "names") == ("a", "b")
    with pytest.raises(InvalidArgument) as caught:
        check_items(wrong, "checks", "names")
    assert str(caught.value) == f"checks must be a list of names, not {wrong!r}"


@pytest.mark.parametrize("wrong", [None, 5, True, b"/x", ["/x"], "a\0b"])
def test_paths_are_text(wrong: object) -> None:
    assert check_path("/x", "path") == check_path(Path("/x"), "path") == Path("/x")
    with pytest.raises(InvalidArgument, match=r"^path must be a path, as text") as caught:
        check_path(wrong, "path")
    assert repr(wrong) in str(caught.value)
