"""What the alignment of slices promises: of their places in pages, and of their addresses."""

from __future__ import annotations

import pytest

from tests.manager.support import MIB, exclusive, sliced
from umfpy import FixedProvider, HostProvider, MemoryManager, Pool, Provider

LAYOUTS = {
    "sub_slices": "sub_slices",
    "exclusive_pages": "exclusive_pages",
    "list": [sliced(65536, max_slice_size=8192), exclusive(131072), sliced(MIB)],
}
SIZES = (1, 31, 100, 1000, 5000, 70_000)


def unaligned() -> Provider:
    return FixedProvider(memoryview(bytearray(32 * MIB))[8:])


PROVIDERS = {"host": HostProvider, "unaligned": unaligned, "pool": lambda: Pool(HostProvider())}


@pytest.mark.parametrize("persistent", ["enabled", "enforced"])
@pytest.mark.parametrize("alignment", [1, 50, 64, 96, 512, 12288, 65536])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_slices_begin_at_multiples(
    provider: str, layout: str, alignment: int, persistent: str
) -> None:
    """Of the alignment in their page; of the power of two in it as an address."""
    properties = {"alignment": alignment, "max_page_size": MIB}
    with MemoryManager(
        PROVIDERS[provider](), LAYOUTS[layout], properties, persistent=persistent
    ) as manager:
        held = [manager.reserve(size) for size in SIZES * 2]
        del held[1::3]
        held += [manager.reserve(size) for size in SIZES]
        for handle in held:
            place = manager.storage(handle)
            assert place.offset % alignment == 0
            assert place.ptr % (alignment & -alignment) == 0
        padding = sum(-manager.storage(handle).size % alignment for handle in held)
        assert manager.memory_usage().bytes_padding == padding
        held.clear()
        del handle


@pytest.mark.parametrize(("entry", "padding"), [(sliced(4096), 192), (exclusive(4096), 0)])
def test_what_empty_slices_take(entry: object, padding: int) -> None:
    with MemoryManager(HostProvider(), [entry], {"alignment": 64}) as manager:
        held = [manager.reserve(0) for _ in range(3)]
        assert len({manager.storage(handle).ptr for handle in held}) == 3
        usage = manager.memory_usage()
        assert (usage.bytes_in_use, usage.bytes_padding) == (0, padding)
        held.clear()
