"""Layouts as people write them, and what they are told about mistakes."""

from __future__ import annotations

import pickle

import pytest

from tests.manager.support import KIB, MIB, PROPERTIES, exclusive, layout, sliced
from umfpy import (
    ConfigurationError,
    HostProvider,
    InvalidArgument,
    MemoryConfiguration,
    MemoryManager,
)
from umfpy.manager import (
    CapSmallerThanPage,
    EmptyPoolList,
    ExclusiveOptions,
    MalformedConfiguration,
    MemoryProperties,
    SlicedOptions,
    SliceLargerThanPage,
    TooManyPages,
    ZeroSize,
)

HEAD = '[[pools]]\ntype = "exclusive"\nmax_alloc_size = "1KiB"\n\n[[pools]]\n'

#: What a file says, the error, and what its words have to name.
MISTAKES = {
    "no TOML": ("pools = [", MalformedConfiguration, ["is no TOML"]),
    "no UTF-8": (b"\xff\xfe", MalformedConfiguration, ["is no TOML"]),
    "nothing": ("", MalformedConfiguration, ["neither 'preset' nor [[pools]]"]),
    "both": (
        'preset = "sub_slices"\n' + HEAD + 'type = "sliced"\npage_size = 1024',
        MalformedConfiguration,
        ["both 'preset' and [[pools]]"],
    ),
    "unknown key": ('presets = "sub_slices"', MalformedConfiguration, ["'presets'", "[[pools]]"]),
    "unknown preset": (
        'preset = "slices"',
        MalformedConfiguration,
        ["preset = 'slices'", "'sub_slices' or 'exclusive_pages'"],
    ),
    "empty list": ("pools = []", EmptyPoolList, ["the pool list is empty", "at least one"]),
    "no list": ('pools = "sliced"', MalformedConfiguration, ["no list", "write [[pools]]"]),
    "no table": ("pools = [5]", MalformedConfiguration, ["pools[0]", "5", "write a table"]),
    "no type": (HEAD + "page_size = 5", MalformedConfiguration, ["pools[1]", "type = None"]),
    "unknown type": (
        HEAD + 'type = "slab"',
        MalformedConfiguration,
        ["pools[1]", "type = 'slab'", "'sliced' or 'exclusive'"],
    ),
    "unknown field": (
        HEAD + 'type = "sliced"\npage = 5',
        MalformedConfiguration,
        ["pools[1] (sliced)", "'page'", "page_size, max_slice_size"],
    ),
    "missing field": (
        HEAD + 'type = "sliced"',
        MalformedConfiguration,
        ["pools[1] (sliced)", "page_size is missing", "'64MiB'"],
    ),
    "unreadable size": (
        HEAD + 'type = "sliced"\npage_size = "64 MegaBytes"',
        MalformedConfiguration,
        ["pools[1] (sliced)", "page_size = '64 MegaBytes'", "'64MiB'"],
    ),
    "broken bytes": (
        HEAD + 'type = "sliced"\npage_size = "1.3B"',
        MalformedConfiguration,
        ["page_size = '1.3B'"],
    ),
    "negative": (
        HEAD + 'type = "exclusive"\nmax_alloc_size = -1',
        MalformedConfiguration,
        ["pools[1] (exclusive)", "max_alloc_size = -1"],
    ),
    "a truth value": (
        HEAD + 'type = "sliced"\npage_size = true',
        MalformedConfiguration,
        ["page_size = True"],
    ),
    "huge": (
        HEAD + 'type = "sliced"\npage_size = 9223372036854775807',
        MalformedConfiguration,
        ["page_size = 9223372036854775807", "below 2^62"],
    ),
    "period as text": (
        HEAD + 'type = "exclusive"\nmax_alloc_size = 8\ndealloc_period = "5"',
        MalformedConfiguration,
        ["dealloc_period = '5'", "number of requests"],
    ),
    "zero": (
        HEAD + 'type = "sliced"\npage_size = 0',
        ZeroSize,
        ["pools[1] (sliced)", "page_size = 0", "above 0"],
    ),
    "slice beyond page": (
        HEAD + 'type = "sliced"\npage_size = "1KiB"\nmax_slice_size = "2KiB"',
        SliceLargerThanPage,
        ["pools[1]", "max_slice_size = 2048", "page_size = 1024", "never span", "raise"],
    ),
    "cap below page": (
        HEAD + 'type = "sliced"\npage_size = "1KiB"\nmax_pool_size = 1000',
        CapSmallerThanPage,
        ["pools[1]", "max_pool_size = 1000", "1024", "raise the cap"],
    ),
    "too many pages": (
        HEAD + 'type = "sliced"\npage_size = "1KiB"\nmax_pool_size = "64GiB"',
        TooManyPages,
        ["pools[1]", "67108864 pages", "65535", "raise page_size"],
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_in_a_file_is_named(name: str, tmp_path) -> None:
    text, kind, words = MISTAKES[name]
    path = tmp_path / "pools.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(kind) as caught:
        MemoryManager(HostProvider(), MemoryConfiguration.from_toml(path), PROPERTIES)
    message = str(caught.value)
    for word in (str(path), *words):
        assert word in message
    again = pickle.loads(pickle.dumps(caught.value))
    assert (type(again), str(again), vars(again)) == (kind, message, vars(caught.value))


@pytest.mark.parametrize("path", [None, 5, 1.5, b"layout.toml", "layout\0.toml"])
def test_what_is_no_path_of_a_file(path: object) -> None:
    with pytest.raises(InvalidArgument, match="path must be a path"):
        MemoryConfiguration.from_toml(path)


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ({"preset": "slices"}, "'slices' is unknown; use 'sub_slices'"),
        ({"preset": 5}, "5 is unknown"),
        ({"pools": ["sliced"]}, r"pools\[0\] is 'sliced'"),
        ({"pools": "sliced"}, "a list of pools, not str"),
        ({"pools": [ExclusiveOptions("much")]}, r"pools\[0\].*max_alloc_size = 'much'"),
        ({"preset": "sub_slices", "pools": [ExclusiveOptions(8)]}, "leave 'sub_slices' out"),
    ],
)
def test_a_configuration_made_by_hand_is_checked(made: dict[str, object], says: str) -> None:
    with pytest.raises(MalformedConfiguration, match=says):
        MemoryConfiguration(**made)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("layout.toml", r"MemoryConfiguration\.from_toml\('layout\.toml'\)"),
        ("folder/layout", r"MemoryConfiguration\.from_toml\('folder/layout'\)"),
        ("single_arena", r"MemoryConfiguration\.single_arena\(largest\)"),
    ],
)
def test_what_is_no_preset_says_what_makes_it(name: str, says: str) -> None:
    with pytest.raises(MalformedConfiguration, match=says):
        MemoryManager(HostProvider(), name)


@pytest.mark.parametrize("wrong", ["no", 1, 0, None])
def test_exclusive_only_is_a_flag(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="exclusive_only must be True or False, not "):
        MemoryConfiguration.exclusive_pages().resolve(PROPERTIES, exclusive_only=wrong)


@pytest.mark.parametrize("text", ['[pools]\ntype = "sliced"\npage_size = 64\n', "pools = 5\n"])
def test_pools_of_a_file_are_tables_in_a_list(text: str, tmp_path) -> None:
    path = tmp_path / "pools.toml"
    path.write_text(text)
    with pytest.raises(MalformedConfiguration, match=r"pools is no list: write \[\[pools\]\]"):
        MemoryConfiguration.from_toml(path)


def test_a_configuration_made_by_hand_is_as_good() -> None:
    assert MemoryConfiguration("sub-slices") == MemoryConfiguration.sub_slices()
    by_hand = MemoryConfiguration(pools=[ExclusiveOptions("8KiB")])
    assert by_hand == layout(exclusive(8 * KIB))
    hash(by_hand)


def test_a_file_that_is_not_there(tmp_path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        MemoryConfiguration.from_toml(tmp_path / "nothing.toml")


def test_a_good_file(tmp_path) -> None:
    path = tmp_path / "pools.toml"
    path.write_text(
        HEAD + 'type = "sliced"\npage_size = "1.5KiB"\nmax_slice_size = 100\n'
        'max_pool_size = "1 MiB"\ndealloc_period = 10\n'
    )
    assert MemoryConfiguration.from_toml(path).resolve(PROPERTIES) == (
        ExclusiveOptions(1024),
        SlicedOptions(1536, 128, MIB, 10),
    )
    path.write_text('preset = "exclusive-pages"')
    assert MemoryConfiguration.from_toml(path).preset == "exclusive_pages"


def test_objects_and_dicts_are_the_same() -> None:
    assert layout(SlicedOptions(KIB, KIB), ExclusiveOptions(8)) == layout(sliced(KIB), exclusive(8))
    with MemoryManager(HostProvider(), [exclusive("1KiB")], PROPERTIES) as manager:
        assert manager.configuration == layout(exclusive(KIB))


def test_the_preset_of_sub_slices() -> None:
    assert MemoryConfiguration.sub_slices().resolve(PROPERTIES) == (
        ExclusiveOptions(0),
        SlicedOptions(8 * MIB, 2 * MIB),
        SlicedOptions(32 * MIB, 16 * MIB),
        SlicedOptions(128 * MIB, 128 * MIB),
    )


def test_the_preset_of_exclusive_pages() -> None:
    pools = MemoryConfiguration.exclusive_pages().resolve(PROPERTIES)
    sizes = [pool.max_alloc_size for pool in pools]
    assert (len(sizes), sizes[0], sizes[-1]) == (24, 32 * KIB, 128 * MIB)
    assert sizes == sorted(set(sizes))
    assert all(size % 32 == 0 for size in sizes)
    assert {pool.dealloc_period for pool in pools} == {5000}
    large = MemoryConfiguration.exclusive_pages().resolve(
        {"max_page_size": 20 << 30, "alignment": 512}
    )
    assert large[-1].dealloc_period == 21 * 5000


@pytest.mark.parametrize("size", [1, 32, 1000, 40 * KIB, 32 * MIB - 1])
def test_presets_of_small_devices_accept_what_fits_a_page(size: int) -> None:
    for preset in ("sub_slices", "exclusive_pages"):
        with MemoryManager(
            HostProvider(), preset, {"max_page_size": size, "alignment": 32}
        ) as manager:
            manager.reserve(size // 32 * 32).release()


def test_properties_come_from_the_provider() -> None:
    provider = HostProvider()
    found = MemoryProperties.of(provider, None)
    assert found.alignment == provider.granule
    assert found.max_page_size == provider.memory_info()[1] // 4 // 64 * 64
    given = MemoryProperties.of(provider, {"max_page_size": "1MiB"})
    assert (given.max_page_size, given.alignment) == (MIB, provider.granule)
    for wrong in (
        {"page": 5},
        {"alignment": 0},
        {"alignment": -32},
        {"max_page_size": 0},
        {"max_page_size": 1 << 62},
        {"alignment": 1 << 31},
    ):
        with pytest.raises(InvalidArgument):
            MemoryProperties.of(provider, wrong)
    for wrong in ({"alignment": 32}, 5, None):
        with pytest.raises(InvalidArgument, match="max_page_size and alignment"):
            layout(exclusive(8)).resolve(wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"alignment": 0}, "alignment must be .* from 1 on, not 0"),
        ({"alignment": "x"}, "alignment = 'x' cannot be read"),
        ({"max_page_size": -1}, "max_page_size = -1 cannot be read: .* negative"),
        ({"align": 3}, r"no \['align'\]; there are max_page_size, alignment"),
        (5, "a mapping with any of max_page_size, alignment, largest_request, not 5"),
        ("alignment", "a mapping with any of .* not 'alignment'"),
        (
            {"max_page_size": 2048, "largest_request": 1024},
            "largest_request = 1024 is less than max_page_size = 2048.*raise the one",
        ),
    ],
)
def test_properties_that_make_no_sense_are_named(wrong: object, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says):
        MemoryProperties.of(HostProvider(), wrong)


def test_the_largest_request_bounds_pages_that_follow_from_the_device() -> None:
    found = MemoryProperties.of(HostProvider(), {"largest_request": "1MiB"})
    assert (found.max_page_size, found.largest_request) == (MIB, MIB)


def test_arguments_that_make_no_sense() -> None:
    for wrong in (
        {"configuration": "slices"},
        {"configuration": 5},
        {"configuration": []},
        {"configuration": {"type": "sliced", "page_size": 5}},
        {"persistent": "sometimes"},
        {"limit_bytes": "much"},
        {"budget": 5},
        {"budget": "5GiB"},
        {"spill": "no"},
        {"thrifty": None},
    ):
        with pytest.raises((ConfigurationError, InvalidArgument)):
            MemoryManager(HostProvider(), **wrong)


def test_the_first_pool_that_accepts_serves() -> None:
    entries = [
        sliced(1024, max_slice_size=64),
        exclusive(256),
        sliced(4096, 8192, max_slice_size=512),
        sliced(4096),
    ]
    serving = {0: 0, 64: 0, 65: 1, 256: 1, 257: 2, 512: 2, 513: 3, 819: 3, 820: 0, 1024: 0, 1025: 3}
    with MemoryManager(HostProvider(), entries, PROPERTIES) as manager:
        for size, place in serving.items():
            with manager.reserve(size):
                live = [pool.usage.number_allocs for pool in manager.pool_usage()[1:]]
            assert live.index(1) == place, size
        with pytest.raises(MemoryError) as caught:
            manager.reserve(4097)
    assert caught.value.largest == 4096
