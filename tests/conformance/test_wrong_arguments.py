"""What the checks of contracts refuse, naming it, before they try anything."""

from __future__ import annotations

from typing import Any

import pytest

from umfpy import HostProvider, InvalidArgument, Pool
from umfpy.testing import check_pool, check_provider


def host_pool() -> Pool:
    return Pool(HostProvider())


FACTORIES: dict[Any, Any] = {check_provider: HostProvider, check_pool: host_pool}
both = pytest.mark.parametrize("check", FACTORIES)


def refuses(words: str, wrong: object, make: Any, *args: Any, **keywords: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        make(*args, **keywords)
    assert words in str(caught.value)
    assert repr(wrong) in str(caught.value)


@both
@pytest.mark.parametrize("wrong", [None, "host", 5])
def test_a_factory_is_called(check: Any, wrong: object) -> None:
    refuses("factory must be a callable that makes a p", wrong, check, wrong)


def test_a_factory_is_not_what_it_makes() -> None:
    provider, pool = HostProvider(), host_pool()
    refuses("factory must be a callable that makes a provider", provider, check_provider, provider)
    refuses("factory must be a callable that makes a pool", pool, check_pool, pool)


def test_a_factory_makes_what_is_checked() -> None:
    pool, provider = host_pool(), HostProvider()
    refuses("the factory makes must be a umfpy.Provider", pool, check_provider, lambda: pool)
    refuses("the factory makes must be a pool", provider, check_pool, lambda: provider)


@both
@pytest.mark.parametrize("name", ["checks", "skip"])
@pytest.mark.parametrize("wrong", ["alloc_free", b"x", 5])
def test_names_of_checks_are_a_list(check: Any, name: str, wrong: object) -> None:
    refuses(f"{name} must be a list of names", wrong, check, FACTORIES[check], **{name: wrong})


@both
@pytest.mark.parametrize("name", ["checks", "skip"])
@pytest.mark.parametrize("wrong", [5, [], None])
def test_a_name_that_is_none(check: Any, name: str, wrong: object) -> None:
    refuses(f"no check {wrong!r}; there are", wrong, check, FACTORIES[check], **{name: [wrong]})


@both
@pytest.mark.parametrize("name", ["live_count", "process_setup"])
def test_what_is_to_be_called(check: Any, name: str) -> None:
    refuses(f"{name} must be a callable", 5, check, FACTORIES[check], **{name: 5})


def test_what_imports_is_called() -> None:
    refuses("importer must be a callable", "x", check_provider, HostProvider, importer="x")


@both
@pytest.mark.parametrize("wrong", [0, -1, "8", None, True, 1.5])
def test_threads_are_a_number(check: Any, wrong: object) -> None:
    refuses(
        "threads must be a whole number from 1 on", wrong, check, FACTORIES[check], threads=wrong
    )


@pytest.mark.parametrize("wrong", [5, "12", (1,), (1, 1), (1, 2, 3), ()])
def test_streams_are_two(wrong: object) -> None:
    refuses("streams must be", wrong, check_pool, host_pool, streams=wrong)


@pytest.mark.parametrize("wrong", ["1", 0, None, True])
def test_a_stream_is_a_handle(wrong: object) -> None:
    refuses(
        "a stream must be a whole number from 1 on",
        wrong,
        check_pool,
        host_pool,
        streams=(wrong, 2),
    )
