"""Sizes as people write them."""

from __future__ import annotations

import pytest

from umfpy import HostProvider, InvalidArgument, MemoryManager, Pool, SlabPool
from umfpy.units import format_size, parse_size


class Index:
    """A whole number of somebody else's, such as those of NumPy."""

    def __index__(self) -> int:
        return 4096


@pytest.mark.parametrize(
    ("written", "size"),
    [
        (0, 0),
        (1 << 70, 1 << 70),
        (Index(), 4096),
        ("512", 512),
        (" 1.5 MiB ", 3 << 19),
        ("2k", 2048),
        ("2kB", 2000),
        ("1tib", 1 << 40),
    ],
)
def test_what_is_a_size(written: object, size: int) -> None:
    assert parse_size(written) == size


class Several:
    """What looks like a number and is none, such as an array of NumPy's."""

    def __index__(self) -> int:
        raise TypeError("several are no number")


@pytest.mark.parametrize(
    "wrong",
    [Several(), 5.5, 5.0, None, True, b"4KiB", [1], object, -1, "", "-1", "1.3B", "4 KiX", "1e3"],
)
def test_what_is_none_names_itself(wrong: object) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parse_size(wrong)
    assert (str(wrong) if isinstance(wrong, int) and wrong < 0 else repr(wrong)) in str(
        caught.value
    )


@pytest.mark.parametrize("make", [Pool, SlabPool, MemoryManager])
@pytest.mark.parametrize("wrong", [5.5, None, "much"])
def test_pools_refuse_what_is_none(make: type, wrong: object) -> None:
    with make(HostProvider()) as pool, pool.allocate(100):
        before = pool.stats()
        with pytest.raises(InvalidArgument, match=r"5\.5|None|'much'"):
            pool.trim(wrong)
        with pytest.raises(InvalidArgument, match=r"not 1\.5"):
            pool.limit_bytes = 1.5
        assert (pool.stats(), pool.limit_bytes) == (before, None)


def test_sizes_for_people() -> None:
    assert [format_size(size) for size in (0, 1023, 1536, 1 << 60)] == [
        "0 B",
        "1023 B",
        "1.50 KiB",
        "1024.00 PiB",
    ]
