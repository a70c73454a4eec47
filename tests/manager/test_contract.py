"""The contract of pools, which anyone's pool can be held to, for the layouts of a manager."""

from __future__ import annotations

import pytest

from tests.fakes.provider import FakeProvider
from umfpy import MemoryManager, Provider
from umfpy.testing import check_pool

#: For CUDA, whose granule is 512 bytes, and for host memory, whose is a page.
PROPERTIES = {"max_page_size": "64MiB", "alignment": 4096}


@pytest.mark.parametrize("persistent", ["enabled", "enforced"])
@pytest.mark.parametrize("layout", ["sub_slices", "exclusive_pages"])
def test_a_manager_keeps_the_contract_of_pools(
    provider: Provider, layout: str, persistent: str
) -> None:
    report = check_pool(lambda: MemoryManager(provider, layout, PROPERTIES, persistent=persistent))
    assert not report.failed, str(report)
    assert len(report.passed) >= 40


@pytest.mark.parametrize("layout", ["sub_slices", "exclusive_pages"])
@pytest.mark.parametrize("mode", ["auto", "persistent"])
def test_pages_begin_where_a_coarser_alignment_has_them(layout: str, mode: str) -> None:
    provider = FakeProvider(granule=512)
    odd = provider.alloc(512)  # what follows is no multiple of 4096
    with MemoryManager(provider, layout, PROPERTIES) as manager:
        manager.mode(mode)
        held = [manager.reserve(4096 * count) for count in (1, 3, 20)]
        for count, handle in zip((1, 3, 20), held, strict=True):
            assert manager.storage(handle).ptr % 4096 == 0
            assert manager.storage(handle).size == 4096 * count
        manager.check("full")
        held.clear()
        del handle
    provider.free(odd, 512)
